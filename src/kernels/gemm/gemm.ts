/**
 * The product of matrices: `gemm` issues its launches, one where the operands are small, two where they are packed, and one
 * where a library stands in for those two: a BLAS on the CPU, cuBLASLt on a GPU. Some of a GPU's are our own.
 */

import type { Blas } from "../../driver/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Bytes, bytes, span } from "../../units/index.js";
import { callListenerOf } from "../call-listener.js";
import { argumentsInOrder } from "../codegen/wasm/wasm-function.js";
import { blasKernel, blasParameters, blasTranspose } from "./cpu/blas.js";
import { type DirectConfig, directParameters, directStripRows } from "./cpu/direct.js";
import { elementOf, type GemmDtype } from "./cpu/element.js";
import { fuseEpilogue } from "./cpu/epilogue.js";
import { gemmKernel } from "./cpu/kernels.js";
import { multiplyParameters } from "./cpu/multiply.js";
import { packParameters } from "./cpu/pack.js";
import { type PackedPlan, planGemm } from "./cpu/plan.js";
import {
  launchCublasLt,
  libraryActivates,
  libraryAlgorithms,
  libraryWorkspaceBytes,
} from "./cublaslt/cublaslt.js";
import {
  accessToC,
  type EpilogueTarget,
  firstNativeAlgorithm,
  type GemmDesc,
  type GemmInputDtype,
  type GemmProblem,
  type GemmShape,
  type MatrixLayout,
  rejected,
  requireBiasAsResult,
  requireSound,
} from "./desc.js";
import { dmmaGemmsOf, launchDmmaGemms } from "./dmma/index.js";
import {
  type Epilogue,
  type EpilogueOn,
  launchWarpgroups,
  type Sm90Config,
  sm90EpilogueOf,
  sm90PrefersTransposedB,
  warpgroupBatchOf,
  warpgroupPlainsOf,
  warpgroupsOf,
} from "./sm90/index.js";

/**
 * `C[m, n] = alpha · op(A)[m, k] · op(B)[k, n] + beta · C`, once or for a batch; then the bias and the activation, where
 * there are any. The order of all additions follows from the shape and the layout, so any number of threads gives the
 * same bits.
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
 * gemm(runtime, { ...problem, scratch });
 * ```
 */
export function gemm(runtime: Runtime, problem: GemmProblem<GemmInputDtype>, op = "gemm"): void {
  requireSound(problem);
  const { m, n, batch = 1 } = problem;
  if (m === 0 || n === 0 || batch === 0) return;
  const listener = callListenerOf(runtime);
  if (listener) {
    listener.product(problem, op);
    return;
  }
  if (runtime.device.kind === "cuda") {
    const wide = dmmaGemmsOf(runtime, [problem]);
    const warpgroups = warpgroupBatchOf(runtime, problem) ?? selectConfig(runtime, problem);
    if (wide) launchDmmaGemms(runtime, [problem], wide, op);
    else if (warpgroups) launchWarpgroups(runtime, [problem], warpgroups, op);
    else launchCublasLt(runtime, problem, op);
    if (problem.activation && !libraryActivates(runtime, problem)) epilogueOnGpu(runtime, problem, op);
    return;
  }
  requireOwn(problem);
  requireBiasAsResult(problem);
  const plan = planGemm(problem);
  if (plan.way !== "packed") launchDirect(runtime, problem, plan.way, op);
  else if (runtime.blas) launchBlas(runtime, runtime.blas, problem, op);
  else launchPacked(runtime, problem, plan, op);
  fuseEpilogue(runtime, problem, op);
}

/**
 * Products that don't wait for each other, in one launch; `canGroupGemms` says beforehand whether that is possible. In f32 their
 * bits are those of `gemm`; in TF32 and of half floats they may be rounded otherwise than a library's.
 */
export function groupedGemm(
  runtime: Runtime,
  problems: readonly GemmProblem<GemmInputDtype>[],
  op = "gemm",
): void {
  for (const problem of problems) requireSound(problem);
  const wide = dmmaGemmsOf(runtime, problems);
  const warpgroups = warpgroupsOf(runtime, problems);
  if (wide) launchDmmaGemms(runtime, problems, wide, op);
  else if (warpgroups) launchWarpgroups(runtime, problems, warpgroups, op);
  else throw rejected("these can't be made in one launch. Ask canGroupGemms first.");
}

/** Can one launch make these products? */
export function canGroupGemms(runtime: Runtime, problems: readonly GemmDesc[]): boolean {
  if (problems.some(({ activation }) => activation)) return false;
  return (dmmaGemmsOf(runtime, problems) ?? warpgroupsOf(runtime, problems)) !== undefined;
}

/**
 * A product with elementwise work on its result, in one launch; `canFuseEpilogue` says beforehand whether that is possible. C is
 * needed only where the finish keeps it.
 */
export function gemmWithEpilogue(
  runtime: Runtime,
  problem: EpilogueTarget,
  finish: EpilogueOn,
  op = "gemm",
): void {
  requireSound(problem);
  const c = problem.c ?? { storage: { span: span(0, 0) }, rowStride: problem.n };
  const form = sm90EpilogueOf(runtime, { ...problem, c }, finish);
  if (!form || (finish.storesC && !problem.c))
    throw rejected("this can't be finished in one launch. Ask canFuseEpilogue first.");
  launchWarpgroups(runtime, [problem], form, op, finish);
}

/** Can one launch make this product and finish it, and is that worth it? */
export function canFuseEpilogue(runtime: Runtime, problem: GemmDesc, finish: Epilogue): boolean {
  return sm90EpilogueOf(runtime, problem, finish) !== undefined;
}

/** Is a product so much quicker with its right side turned round, `isTransposed`, that a pass over it pays? */
export function prefersTransposedB(runtime: Runtime, problem: GemmDesc): boolean {
  return sm90PrefersTransposedB(runtime, problem);
}

/**
 * How much scratch memory a product needs: 0 where it works straight from its operands. It may be used for something
 * else as soon as the product's launches are behind in the stream.
 */
export function gemmScratchBytes(runtime: Runtime, problem: GemmDesc): Bytes {
  if (runtime.device.kind === "cuda") {
    const isOwn = hasNativeGemm(runtime, problem) || selectConfig(runtime, problem) !== undefined;
    return bytes(isOwn ? 0 : libraryWorkspaceBytes(runtime, problem));
  }
  requireOwn(problem);
  return cpuScratchBytes(runtime, problem);
}

/** What a product can be given as its `choice`, the usual one first; nothing else where it is our own kernels' work anyway. */
export function gemmCandidates(runtime: Runtime, problem: GemmDesc): readonly number[] {
  if (runtime.device.kind !== "cuda" || hasNativeGemm(runtime, problem)) return [0];
  const ofLibrary = Array.from({ length: libraryAlgorithms(runtime, problem) }, (_, choice) => choice);
  return [
    ...ofLibrary,
    ...warpgroupPlainsOf(runtime, problem).map((_, index) => firstNativeAlgorithm - index),
  ];
}

/** Our own kernel for a product, where that was chosen. */
function selectConfig(runtime: Runtime, problem: GemmDesc): Sm90Config | undefined {
  const { choice = 0 } = problem;
  return choice <= firstNativeAlgorithm
    ? warpgroupPlainsOf(runtime, problem)[firstNativeAlgorithm - choice]
    : undefined;
}

/** Are a GPU's kernels for a product our own, also where it is made alone? */
export function hasNativeGemm(runtime: Runtime, problem: GemmDesc): boolean {
  return (dmmaGemmsOf(runtime, [problem]) ?? warpgroupBatchOf(runtime, problem)) !== undefined;
}

/** What the CPU's own kernels need: room for the packed panels of a large product. */
export function cpuScratchBytes({ blas }: Pick<Runtime, "blas">, shape: GemmShape): Bytes {
  const plan = planGemm(shape);
  return plan.way === "packed" && !blas ? plan.scratchBytes : bytes(0);
}

/** The activation alone: the bias came with the product. */
function epilogueOnGpu(runtime: Runtime, problem: GemmProblem<GemmInputDtype>, op: string): void {
  requireOwn(problem);
  const { bias: _, biasBatchStride: __, ...unbiased } = problem;
  fuseEpilogue(runtime, unbiased, op);
}

/** Our own kernels multiply f32 and f64; half floats are widened before. */
function requireOwn<P extends Pick<GemmDesc, "dtype" | "resultDtype">>(
  problem: P,
): asserts problem is P & { readonly dtype: GemmDtype; readonly resultDtype?: GemmDtype } {
  const { dtype, resultDtype = dtype } = problem;
  if ((dtype === "f32" || dtype === "f64") && resultDtype === dtype) return;
  throw rejected(`the CPU multiplies f32 and f64, not ${problem.dtype}. Widen the operands first.`);
}

function launchPacked(runtime: Runtime, problem: GemmProblem, plan: PackedPlan, op: string): void {
  const { dtype, m, n, k, a, b, scratch } = problem;
  const element = elementOf(dtype);
  if (!scratch || scratch.span.size < plan.scratchBytes) {
    const there = scratch ? `"${scratch.label}" has ${scratch.span.size}` : "none was given";
    throw rejected(
      `${m}×${n}×${k} in ${dtype} needs ${plan.scratchBytes} bytes of scratch memory, and ${there}. Ask gemmScratchBytes how much to allocate.`,
    );
  }
  const access = accessToC(problem);
  const fromA = stridesOf(problem, a);
  // op(B) is packed by columns, which are the rows of its transpose.
  const fromB = stridesOf(problem, { ...b, isTransposed: !b.isTransposed });
  runtime.launch({
    op,
    kernel: runtime.kernel(gemmKernel("pack", dtype, "out")),
    blocks: plan.aBlocks + plan.bBlocks,
    arguments: argumentsInOrder(packParameters, {
      a: a.storage,
      b: b.storage,
      scratch,
      aKMajor: fromA.along,
      aAcross: fromA.across,
      aBatchBytes: fromA.batch,
      aPackedBatchBytes: plan.aBatchBytes,
      aGroups: plan.aGroups,
      aBlocks: plan.aBlocks,
      bKMajor: fromB.along,
      bAcross: fromB.across,
      bBatchBytes: fromB.batch,
      bPackedBatchBytes: plan.bBatchBytes,
      bGroups: plan.bGroups,
      bOffset: plan.bOffset,
      m,
      n,
      k,
    }),
  });
  runtime.launch({
    op,
    kernel: runtime.kernel(gemmKernel("multiply", dtype, access)),
    blocks: plan.blocks,
    arguments: argumentsInOrder(multiplyParameters(element, access), {
      ...plan,
      ...resultOf(problem),
      scratch,
      m,
      n,
      k,
    }),
  });
}

function launchDirect(runtime: Runtime, problem: GemmProblem, form: DirectConfig, op: string): void {
  const { dtype, m, n, k, batch = 1, a, b } = problem;
  const element = elementOf(dtype);
  const access = accessToC(problem);
  const fromA = stridesOf(problem, a);
  const fromB = stridesOf(problem, b);
  const rowStrips = Math.ceil(m / directStripRows);
  runtime.launch({
    op,
    kernel: runtime.kernel(gemmKernel(form, dtype, access)),
    blocks: rowStrips * batch,
    arguments: argumentsInOrder(directParameters(element, access), {
      ...resultOf(problem),
      a: a.storage,
      b: b.storage,
      m,
      n,
      k,
      rowStrips,
      aAcross: fromA.across,
      aKMajor: fromA.along,
      aBatchBytes: fromA.batch,
      bStride: b.rowStride * element.bytes,
      bBatchBytes: fromB.batch,
    }),
  });
}

/** One block for each product of the batch. */
function launchBlas(runtime: Runtime, blas: Blas, problem: GemmProblem, op: string): void {
  const { dtype, m, n, k, batch = 1, a, b, c, alpha = 1, beta = 0 } = problem;
  const access = accessToC(problem);
  runtime.launch({
    op,
    kernel: runtime.kernel(blasKernel(blas, dtype, access)),
    blocks: batch,
    arguments: argumentsInOrder(blasParameters(dtype, access), {
      c: c.storage,
      a: a.storage,
      b: b.storage,
      m,
      n,
      k,
      transposeA: blasTranspose(a),
      transposeB: blasTranspose(b),
      // A single row's stride says nothing, and BLAS takes none that is shorter than the row.
      aRowStride: Math.max(a.rowStride, a.isTransposed ? m : k),
      bRowStride: Math.max(b.rowStride, b.isTransposed ? k : n),
      cRowStride: Math.max(c.rowStride, n),
      aBatchBytes: stridesOf(problem, a).batch,
      bBatchBytes: stridesOf(problem, b).batch,
      cBatchBytes: stridesOf(problem, c).batch,
      alpha,
      beta,
      threads: runtime.device.parallelism,
    }),
  });
}

/** Bytes between neighbours in k (`along`) and in the other dimension (`across`), of an operand [that, k]. */
function stridesOf({ dtype }: GemmProblem, { rowStride, isTransposed, batchStride = 0 }: MatrixLayout) {
  const { bytes } = elementOf(dtype);
  const row = rowStride * bytes;
  const strides = isTransposed ? { along: row, across: bytes } : { along: bytes, across: row };
  return { ...strides, batch: batchStride * bytes };
}

function resultOf({ dtype, c, alpha = 1, beta = 0 }: GemmProblem) {
  const { bytes } = elementOf(dtype);
  return {
    c: c.storage,
    cRowBytes: c.rowStride * bytes,
    cBatchBytes: (c.batchStride ?? 0) * bytes,
    alpha,
    beta,
    readsC: beta === 0 ? 0 : 1,
  };
}
