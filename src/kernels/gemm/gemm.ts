/** GEMMs as kernel calls, and queries about them that need no memory. */

import type { Runtime } from "../../runtime/index.js";
import type { Bytes } from "../../units/index.js";
import { backendOf } from "../backend.js";
import type { KernelCall } from "../kernel-call.js";
import type { Target } from "../target.js";
import { type Addend, type GemmDesc, type GemmInputDtype, type GemmProblem, requireValid } from "./desc.js";
import { exactGemmCandidates } from "./f32.js";
import { groupedSkinnyCandidates, type Prologue, skinnyPrologueCandidates } from "./skinny/index.js";
import {
  type Epilogue,
  isSm90Projection,
  sm90EpilogueConfigs,
  sm90GroupedConfigs,
  sm90OperandToTranspose,
  sm90PrefersFusedEpilogue,
  sm90PrefersSum,
  sm90PrefersTransposedB,
  sm90SumConfigs,
} from "./sm90/index.js";

type TargetFacts = Pick<Target, "device" | "settings">;

/**
 * `C[m, n] = alpha · op(A)[m, k] · op(B)[k, n] + beta · C`, for one matrix or a batch; then the optional bias and activation. The order of
 * all additions follows from shape and layout, so that the bits do not depend on the number of threads.
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
  requireValid(problem);
  const { m, n, batch = 1 } = problem;
  return m === 0 || n === 0 || batch === 0 ? [] : [{ kind: "gemm", op, problem }];
}

/** True if one launch can compute these GEMMs. */
export function canGroupGemms(target: TargetFacts, problems: readonly GemmDesc[]): boolean {
  if (problems.some(({ activation }) => activation)) return false;
  return exactGemmCandidates(target, problems) > 0 || sm90GroupedConfigs(target, problems).length > 0;
}

/** True if the GEMM is a projection to a few columns, which one launch computes with others. */
export function isProjection(target: TargetFacts, problem: GemmDesc): boolean {
  return !problem.activation && isSm90Projection(target, problem);
}

/** True if one launch can compute these GEMMs of few rows, provided that all of them have the same A. */
export function canShareActivations(target: TargetFacts, problems: readonly GemmDesc[]): boolean {
  return groupedSkinnyCandidates(target, problems).length > 0;
}

/** The number of algorithms of a grouped GEMM, the default first; 0 if one launch cannot compute it. */
export function groupedCandidates(target: TargetFacts, problems: readonly GemmDesc[]): number {
  if (problems.some(({ activation }) => activation)) return 0;
  if (exactGemmCandidates(target, problems) > 0) return 1;
  return sm90GroupedConfigs(target, problems).length || groupedSkinnyCandidates(target, problems).length;
}

/** True if one launch can compute this GEMM with its epilogue. */
export function canFuseEpilogue(target: TargetFacts, problem: GemmDesc, epilogue: Epilogue): boolean {
  return epilogueCandidates(target, problem, epilogue) > 0;
}

/** True if one launch is probably faster than two. */
export function prefersFusedEpilogue(target: TargetFacts, problem: GemmDesc, epilogue: Epilogue): boolean {
  return sm90PrefersFusedEpilogue(target, problem, epilogue);
}

/** The number of algorithms of a GEMM with its epilogue, the default first; 0 if one launch cannot compute it. */
export function epilogueCandidates(target: TargetFacts, problem: GemmDesc, epilogue: Epilogue): number {
  return sm90EpilogueConfigs(target, problem, epilogue).length;
}

/**
 * The number of algorithms of GEMMs of one row whose A a row kernel computes in their launch, the default first; 0 if one launch cannot. All
 * GEMMs have the same A.
 */
export function prologueCandidates(
  target: TargetFacts,
  problems: readonly GemmDesc[],
  prologue: Prologue,
): number {
  return skinnyPrologueCandidates(target, problems, prologue).length;
}

/** The number of algorithms of a GEMM plus other products in one launch, the default first; 0 if one launch cannot compute it. */
export function sumCandidates(
  target: TargetFacts,
  problem: GemmDesc,
  addends: readonly Addend<GemmDesc["a"]>[],
): number {
  return sm90SumConfigs(target, problem, addends).length;
}

/** True if such a sum is probably faster as one launch. */
export function prefersSum(problem: GemmDesc, addends: readonly { readonly k: number }[]): boolean {
  return sm90PrefersSum(problem, addends);
}

/** True if a GEMM gains more from a transposed B than the transposition costs. */
export function prefersTransposedB(target: TargetFacts, problem: GemmDesc): boolean {
  return sm90PrefersTransposedB(target, problem);
}

/** The operand of a GEMM whose transposed copy gains more than it costs; undefined if there is none. */
export function operandToTranspose(target: TargetFacts, problem: GemmDesc): "a" | "b" | undefined {
  return sm90OperandToTranspose(target, problem);
}

/** The scratch memory that a GEMM needs; 0 if it needs none. Later work of the same stream may reuse it. */
export function gemmScratchBytes(runtime: Runtime, problem: GemmDesc): Bytes {
  return backendOf(runtime).gemmScratchBytes(problem);
}

/** The algorithms that a GEMM can use, the default first. Only the default if a native kernel computes it without autotuning. */
export function gemmCandidates(runtime: Runtime, problem: GemmDesc): readonly number[] {
  return backendOf(runtime).gemmCandidates(problem);
}
