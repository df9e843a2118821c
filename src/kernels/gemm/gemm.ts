/** GEMMs as calls, and what can be asked about them before there is any memory. */

import type { Runtime } from "../../runtime/index.js";
import type { Bytes } from "../../units/index.js";
import { backendOf } from "../backend.js";
import type { KernelCall } from "../kernel-call.js";
import type { Target } from "../target.js";
import { type GemmDesc, type GemmInputDtype, type GemmProblem, requireSound } from "./desc.js";
import { dmmaConfigOf } from "./dmma/index.js";
import {
  type Epilogue,
  sm90EpilogueConfig,
  sm90GroupedConfig,
  sm90PrefersTransposedB,
} from "./sm90/index.js";

type Facts = Pick<Target, "device" | "settings">;

/**
 * `C[m, n] = alpha · op(A)[m, k] · op(B)[k, n] + beta · C`, once or for a batch; then the bias and the activation, if
 * given. The order of all additions follows from shape and layout, so any number of threads gives the same bits.
 *
 * ```js
 * const problem = {
 *   ...{ dtype: "f32", m, n, k },
 *   a: { storage: x, rowStride: k },
 *   b: { storage: w, rowStride: n },
 *   c: { storage: y, rowStride: n },
 * };
 * const scratchBytes = gemmScratchBytes(runtime, problem);
 * const scratch = scratchBytes > 0 ? runtime.arena.allocate(scratchBytes, "gemm") : undefined;
 * submit(runtime, gemmCalls({ ...problem, scratch }));
 * ```
 */
export function gemmCalls(problem: GemmProblem<GemmInputDtype>, op = "gemm"): readonly KernelCall[] {
  requireSound(problem);
  const { m, n, batch = 1 } = problem;
  return m === 0 || n === 0 || batch === 0 ? [] : [{ kind: "gemm", op, problem }];
}

/** Can one launch make these GEMMs? */
export function canGroupGemms(runtime: Facts, problems: readonly GemmDesc[]): boolean {
  if (problems.some(({ activation }) => activation)) return false;
  return (dmmaConfigOf(runtime, problems) ?? sm90GroupedConfig(runtime, problems)) !== undefined;
}

/** Can one launch make this GEMM with its epilogue, and is that worth it? */
export function canFuseEpilogue(runtime: Facts, problem: GemmDesc, epilogue: Epilogue): boolean {
  return sm90EpilogueConfig(runtime, problem, epilogue) !== undefined;
}

/** Is a GEMM so much faster with B transposed that a pass over B pays? */
export function prefersTransposedB(runtime: Facts, problem: GemmDesc): boolean {
  return sm90PrefersTransposedB(runtime, problem);
}

/**
 * How much scratch memory a GEMM needs; 0 where it works straight from its operands. The memory may be used for something else
 * by what the stream runs after the GEMM's launches.
 */
export function gemmScratchBytes(runtime: Runtime, problem: GemmDesc): Bytes {
  return backendOf(runtime).gemmScratchBytes(problem);
}

/** The values that a GEMM's `algorithm` can have, the default first; no other where native kernels do it anyway. */
export function gemmCandidates(runtime: Runtime, problem: GemmDesc): readonly number[] {
  return backendOf(runtime).gemmCandidates(problem);
}
