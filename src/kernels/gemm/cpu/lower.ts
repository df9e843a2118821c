/**
 * Lowers GEMMs to launches on the CPU: a direct kernel for small operands; packing and multiplication, or a BLAS, for others. Bias and
 * activation are a separate pass.
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
import { type DirectConfig, directParameters, directStrips } from "./direct.js";
import { type Element, elementOf, type GemmDtype } from "./element.js";
import { epilogueLaunch } from "./epilogue.js";
import { gemmKernel } from "./kernels.js";
import { multiplyParameters } from "./multiply.js";
import { packParameters } from "./pack.js";
import { planGemm, planPacked } from "./plan.js";

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
        : lowerPacked(problem, elementOf(problem.dtype), op);
  const epilogue = epilogueLaunch(problem, op);
  return epilogue ? [...launches, lowerRowOnWasm(epilogue)] : launches;
}

/** The scratch memory for packed panels; 0 if the GEMM is not packed. */
export function cpuScratchBytes({ blas }: Pick<Target, "blas">, shape: GemmShape): Bytes {
  const plan = planGemm(shape);
  return plan.algorithm === "packed" && !blas ? plan.scratchBytes : bytes(0);
}

/** Rejects 16-bit floats: the CPU kernels multiply f32 and f64. */
export function requireFloat<P extends Pick<GemmDesc, "dtype" | "resultDtype">>(
  problem: P,
): asserts problem is P & { readonly dtype: GemmDtype; readonly resultDtype?: GemmDtype } {
  const { dtype, resultDtype = dtype } = problem;
  if ((dtype === "f32" || dtype === "f64") && resultDtype === dtype) return;
  throw rejected(`the CPU multiplies f32 and f64, not ${problem.dtype}. Widen the operands first.`);
}

/** Packing and multiplication. Every tile of the element gives the same bits. */
export function lowerPacked(problem: GemmProblem, element: Element, op: string): readonly LaunchCommand[] {
  const { dtype, m, n, k, a, b, scratch } = problem;
  const plan = planPacked(problem, element);
  if (!scratch || scratch.span.size < plan.scratchBytes) {
    const available = scratch ? `"${scratch.label}" has ${scratch.span.size}` : "none was passed";
    throw rejected(
      `${m}×${n}×${k} in ${dtype} needs ${plan.scratchBytes} bytes of scratch memory, and ${available}. Call gemmScratchBytes for the size.`,
    );
  }
  const access = accessToC(problem);
  const stridesA = stridesOf(problem, a);
  // op(B) is packed by columns, which are the rows of its transpose.
  const stridesB = stridesOf(problem, { ...b, isTransposed: !b.isTransposed });
  const pack: LaunchCommand = {
    ...{ kind: "launch", op },
    source: gemmKernel("pack", element, "out"),
    blocks: plan.aBlocks + plan.bBlocks,
    arguments: argumentsInOrder(packParameters, {
      a: a.storage,
      b: b.storage,
      scratch,
      aKBytes: stridesA.k,
      aMnBytes: stridesA.mn,
      aBatchBytes: stridesA.batch,
      aPackedBatchBytes: plan.aBatchBytes,
      aGroups: plan.aGroups,
      aBlocks: plan.aBlocks,
      bKBytes: stridesB.k,
      bMnBytes: stridesB.mn,
      bBatchBytes: stridesB.batch,
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
    source: gemmKernel("multiply", element, access),
    blocks: plan.blocks,
    arguments: argumentsInOrder(multiplyParameters(element, access), {
      ...plan,
      ...resultOf(problem),
      scratch,
      a: plan.isAPacked ? scratch : a.storage,
      aMnBytes: stridesA.mn,
      aKBytes: stridesA.k,
      aBatchBytes: plan.isAPacked ? plan.aBatchBytes : stridesA.batch,
      m,
      n,
      k,
    }),
  };
  return [pack, multiply];
}

function lowerDirect(problem: GemmProblem, config: DirectConfig, op: string): LaunchCommand {
  const { dtype, m, n, k, batch = 1, a, b } = problem;
  const element = elementOf(dtype);
  const access = accessToC(problem);
  const stridesA = stridesOf(problem, a);
  const stridesB = stridesOf(problem, b);
  const strips = directStrips(problem);
  return {
    ...{ kind: "launch", op },
    source: gemmKernel(config, element, access),
    blocks: strips.rowStrips * strips.columnStrips * batch,
    arguments: argumentsInOrder(directParameters(element, access), {
      ...resultOf(problem),
      a: a.storage,
      b: b.storage,
      m,
      n,
      k,
      ...strips,
      aMnBytes: stridesA.mn,
      aKBytes: stridesA.k,
      aBatchBytes: stridesA.batch,
      bStride: b.rowStride * element.bytes,
      bBatchBytes: stridesB.batch,
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
      // The stride of a single row is arbitrary, but BLAS rejects one that is shorter than the row.
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

/** The strides of an operand in bytes: along K, along M or N, and along the batch. */
function stridesOf({ dtype }: GemmProblem, { rowStride, isTransposed, batchStride = 0 }: MatrixLayout) {
  const { bytes } = elementOf(dtype);
  const row = rowStride * bytes;
  const strides = isTransposed ? { k: row, mn: bytes } : { k: bytes, mn: row };
  return { ...strides, batch: batchStride * bytes };
}

/** The arguments for C. */
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
