/**
 * Lowers GEMMs to launches on the CPU: one where the operands are small, two where they are packed, one where a BLAS stands in
 * for those two. Bias and activation are a pass of their own.
 */

import type { Blas } from "../../../driver/index.js";
import type { LaunchCommand } from "../../../runtime/index.js";
import { type Bytes, bytes } from "../../../units/index.js";
import { lowerRowOnWasm } from "../../codegen/wasm/lower.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import type { Target } from "../../target.js";
import {
  accessToC,
  type GemmDesc,
  type GemmInputDtype,
  type GemmProblem,
  type GemmShape,
  type MatrixLayout,
  rejected,
  requireBiasAsResult,
} from "../desc.js";
import { blasKernel, blasParameters, blasTranspose } from "./blas.js";
import { type DirectConfig, directParameters, directStripRows } from "./direct.js";
import { elementOf, type GemmDtype } from "./element.js";
import { epilogueLaunch } from "./epilogue.js";
import { gemmKernel } from "./kernels.js";
import { multiplyParameters } from "./multiply.js";
import { packParameters } from "./pack.js";
import { type PackedPlan, planGemm } from "./plan.js";

export function lowerGemmOnCpu(
  { blas, device }: Pick<Target, "blas" | "device">,
  problem: GemmProblem<GemmInputDtype>,
  op: string,
): readonly LaunchCommand[] {
  requireFloat(problem);
  requireBiasAsResult(problem);
  const plan = planGemm(problem);
  const launches =
    plan.algorithm !== "packed"
      ? [lowerDirect(problem, plan.algorithm, op)]
      : blas
        ? [lowerBlas(blas, problem, device.parallelism, op)]
        : lowerPacked(problem, plan, op);
  const epilogue = epilogueLaunch(problem, op);
  return epilogue ? [...launches, lowerRowOnWasm(epilogue)] : launches;
}

/** The room for the packed panels of a large GEMM. */
export function cpuScratchBytes({ blas }: Pick<Target, "blas">, shape: GemmShape): Bytes {
  const plan = planGemm(shape);
  return plan.algorithm === "packed" && !blas ? plan.scratchBytes : bytes(0);
}

/** The CPU's kernels multiply f32 and f64; half floats are widened before. */
export function requireFloat<P extends Pick<GemmDesc, "dtype" | "resultDtype">>(
  problem: P,
): asserts problem is P & { readonly dtype: GemmDtype; readonly resultDtype?: GemmDtype } {
  const { dtype, resultDtype = dtype } = problem;
  if ((dtype === "f32" || dtype === "f64") && resultDtype === dtype) return;
  throw rejected(`the CPU multiplies f32 and f64, not ${problem.dtype}. Widen the operands first.`);
}

function lowerPacked(problem: GemmProblem, plan: PackedPlan, op: string): readonly LaunchCommand[] {
  const { dtype, m, n, k, a, b, scratch } = problem;
  const element = elementOf(dtype);
  if (!scratch || scratch.span.size < plan.scratchBytes) {
    const available = scratch ? `"${scratch.label}" has ${scratch.span.size}` : "none was passed";
    throw rejected(
      `${m}×${n}×${k} in ${dtype} needs ${plan.scratchBytes} bytes of scratch memory, and ${available}. Call gemmScratchBytes for the size.`,
    );
  }
  const access = accessToC(problem);
  const fromA = stridesOf(problem, a);
  // op(B) is packed by columns, which are the rows of its transpose.
  const fromB = stridesOf(problem, { ...b, isTransposed: !b.isTransposed });
  const pack: LaunchCommand = {
    ...{ kind: "launch", op },
    source: gemmKernel("pack", dtype, "out"),
    blocks: plan.aBlocks + plan.bBlocks,
    arguments: argumentsInOrder(packParameters, {
      a: a.storage,
      b: b.storage,
      scratch,
      aKBytes: fromA.along,
      aMnBytes: fromA.across,
      aBatchBytes: fromA.batch,
      aPackedBatchBytes: plan.aBatchBytes,
      aGroups: plan.aGroups,
      aBlocks: plan.aBlocks,
      bKBytes: fromB.along,
      bMnBytes: fromB.across,
      bBatchBytes: fromB.batch,
      bPackedBatchBytes: plan.bBatchBytes,
      bGroups: plan.bGroups,
      bOffset: plan.bOffset,
      m,
      n,
      k,
    }),
  };
  const multiply: LaunchCommand = {
    ...{ kind: "launch", op },
    source: gemmKernel("multiply", dtype, access),
    blocks: plan.blocks,
    arguments: argumentsInOrder(multiplyParameters(element, access), {
      ...plan,
      ...resultOf(problem),
      scratch,
      m,
      n,
      k,
    }),
  };
  return [pack, multiply];
}

function lowerDirect(problem: GemmProblem, form: DirectConfig, op: string): LaunchCommand {
  const { dtype, m, n, k, batch = 1, a, b } = problem;
  const element = elementOf(dtype);
  const access = accessToC(problem);
  const fromA = stridesOf(problem, a);
  const fromB = stridesOf(problem, b);
  const rowStrips = Math.ceil(m / directStripRows);
  return {
    ...{ kind: "launch", op },
    source: gemmKernel(form, dtype, access),
    blocks: rowStrips * batch,
    arguments: argumentsInOrder(directParameters(element, access), {
      ...resultOf(problem),
      a: a.storage,
      b: b.storage,
      m,
      n,
      k,
      rowStrips,
      aMnBytes: fromA.across,
      aKBytes: fromA.along,
      aBatchBytes: fromA.batch,
      bStride: b.rowStride * element.bytes,
      bBatchBytes: fromB.batch,
    }),
  };
}

/** One block for each GEMM of the batch. */
function lowerBlas(blas: Blas, problem: GemmProblem, threads: number, op: string): LaunchCommand {
  const { dtype, m, n, k, batch = 1, a, b, c, alpha = 1, beta = 0 } = problem;
  const access = accessToC(problem);
  return {
    ...{ kind: "launch", op },
    source: blasKernel(blas, dtype, access),
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
      threads,
    }),
  };
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
