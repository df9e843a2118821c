/** Lowers a matrix product to a GEMM: finds the operands' layouts, folds batches, and copies operands that a GEMM can't read. */

import { biasAlignment } from "../../driver/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import {
  type GemmInputDtype,
  type GemmProblem,
  type MatrixLayout,
  maxVectorBytes,
} from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import {
  broadcastStrides,
  contiguousStrides,
  type DeviceArray,
  isContiguous,
  mergeAxes,
} from "../device-array.js";
import type { Lowering } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { isSameShape, type Shape, sizeOf } from "../shape.js";
import { lowerSkinnyGemm, maxSkinny } from "./skinny-gemm.js";

/** A matrix, or a batch of matrices, in a GEMM's terms. */
interface GemmOperand extends MatrixLayout {
  readonly array: DeviceArray;
}

/** Two matrices of a product. */
export interface Factors {
  readonly left: DeviceArray;
  readonly right: DeviceArray;
  /** Scales the product. Default: 1. */
  readonly scale?: number | undefined;
}

/**
 * `output[batch…, m, n] = left[batch…, m, k] · right[batch…, k, n] + bias`. The output is contiguous along its last axis, and its
 * batch axes merge to one stride. The operands' batches broadcast to the output's, and so does the bias, [n] or [batch, 1, n].
 */
export function lowerGemm(
  lowering: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  output: DeviceArray,
  bias?: DeviceArray,
): void {
  lowerGemmSum(lowering, [{ left, right }], output, bias);
}

/** As `lowerGemm`, for the sum of several products: each GEMM after the first adds to the output. */
export function lowerGemmSum(
  lowering: Lowering,
  products: readonly Factors[],
  output: DeviceArray,
  bias?: DeviceArray,
): void {
  const filled = products.filter(
    ({ left, right }) => left.shape.at(-1) !== 0 && left.storage && right.storage,
  );
  const [first] = filled;
  if (!output.storage) return;
  if (!first) {
    if (bias) copyArray(lowering, bias, output);
    else fillWith(lowering, output, 0);
    return;
  }
  if (filled.length === 1 && (first.scale ?? 1) === 1 && lowerSkinny(lowering, first, output, bias)) return;
  const dtype = accumulatorDtype(lowering, output.dtype);
  const target = output.dtype === dtype ? output : lowering.scratchArray(output.shape, dtype);
  for (const [index, factors] of filled.entries()) {
    if (index === 0) lowerProduct(lowering, factors, target, dtype, { bias });
    else lowerProduct(lowering, factors, target, dtype, { adds: true });
  }
  if (target !== output) copyArray(lowering, target, output);
}

/** Lowers a product with a short side to other kernels. Returns false if it has none. */
function lowerSkinny(
  lowering: Lowering,
  { left, right }: Factors,
  output: DeviceArray,
  bias: DeviceArray | undefined,
): boolean {
  const batch = output.shape.slice(0, -2);
  if (batch.length === 0) return lowerSkinnyGemm(lowering, left, right, output, bias);
  const folded = foldedLeft({ left, right }, output);
  const [m = 1, n = 1] = output.shape.slice(-2);
  const rows = { ...output, shape: [sizeOf(batch) * m, n], strides: [n, 1] };
  return folded !== undefined && lowerSkinnyGemm(lowering, folded, firstMatrix(right), rows, bias);
}

/** The left operand with all rows of a batch that shares one right matrix. */
function foldedLeft({ left, right }: Factors, target: DeviceArray): DeviceArray | undefined {
  const batch = target.shape.slice(0, -2);
  const [m = 1] = target.shape.slice(-2);
  const isShared = batch.length > 0 && sizeOf(right.shape.slice(0, -2)) === 1 && isContiguous(target);
  return isShared ? foldBatch(left, batch, m, left.shape.at(-1) ?? 1) : undefined;
}

/** One GEMM with a result of the accumulator's dtype. `adds`: to what the target has. */
function lowerProduct(
  lowering: Lowering,
  factors: Factors,
  target: DeviceArray,
  dtype: GemmInputDtype,
  { bias, adds = false }: { readonly bias?: DeviceArray | undefined; readonly adds?: boolean },
): void {
  const { left, right, scale = 1 } = factors;
  const batch = target.shape.slice(0, -2);
  const [m = 1, n = 1] = target.shape.slice(-2);
  const k = left.shape.at(-1) ?? 1;
  const operandDtype = roundedDtype(lowering, dtype) ?? halfOperands(lowering, factors) ?? dtype;
  const batchStride = batchStrideOf(batch, target.strides) ?? m * n;
  if (!target.storage) return;
  const size = sizeOf(batch);
  const folded = foldedLeft(factors, target);
  // Fused, the bias is part of the epilogue. Otherwise it is copied to the output, and the GEMM accumulates into it.
  const fusedBias =
    bias && lowering.backend.capabilities.fusesBias ? biasVector(lowering, bias, dtype) : undefined;
  const beta = adds || (bias && !fusedBias) ? 1 : 0;
  if (bias && !fusedBias) copyArray(lowering, bias, target);
  const isLarge = size * m * n * k >= minMacsForAlignment;
  const a = gemmOperand(lowering, folded ?? left, operandDtype, folded ? [] : batch, isLarge);
  const b = gemmOperand(lowering, right, operandDtype, folded ? [] : batch, isLarge);
  if (!a.array.storage || !b.array.storage) return;
  const rows = folded ? size * m : m;
  const problem: GemmProblem<GemmInputDtype> = {
    dtype: operandDtype,
    resultDtype: dtype,
    m: rows,
    n,
    k,
    batch: folded ? 1 : size,
    a: { ...a, storage: a.array.storage },
    b: { ...b, storage: b.array.storage },
    c: { storage: target.storage, rowStride: rowStrideOf(target), batchStride: folded ? 0 : batchStride },
    beta,
    ...(scale !== 1 && { alpha: scale }),
    ...(fusedBias?.storage && {
      bias: fusedBias.storage,
      biasBatchStride: batchStrideOf(batch, broadcastStrides(fusedBias, target.shape)) ?? 0,
    }),
  };
  const bytes = lowering.backend.gemmScratchBytes(problem);
  lowering.gemm(bytes > 0 ? { ...problem, scratch: lowering.scratch(bytes) } : problem);
}

/** The dtype that f32 operands are rounded to, if the precision setting allows it. The result stays f32. */
function roundedDtype({ backend, precision }: Lowering, dtype: GemmInputDtype): "bf16" | undefined {
  const isRounded = backend.capabilities.multipliesHalfFloats && precision === "bf16";
  return isRounded && dtype === "f32" ? "bf16" : undefined;
}

/** The dtype of operands of half floats, which a wide result does not widen. */
function halfOperands({ backend }: Lowering, { left, right }: Factors): "f16" | "bf16" | undefined {
  const { dtype } = left;
  const isHalf = (dtype === "f16" || dtype === "bf16") && right.dtype === dtype;
  return isHalf && backend.capabilities.multipliesHalfFloats ? dtype : undefined;
}

/** [rows…, width] as [rows, width], rounded as a GEMM rounds its operands; undefined if a GEMM of this array would not round it. */
export function castForGemm(lowering: Lowering, array: DeviceArray): DeviceArray | undefined {
  const { shape, strides, dtype } = array;
  const gemmInput = dtype === "f32" ? roundedDtype(lowering, dtype) : undefined;
  const rows = mergeAxes({ shape: shape.slice(0, -1), strides: strides.slice(0, -1) });
  const [width = 1] = shape.slice(-1);
  if (!gemmInput || !rows || !array.storage || width <= maxSkinny || rows.size <= maxSkinny) return undefined;
  const flat = { ...array, shape: [rows.size, width], strides: [rows.stride, strides.at(-1) ?? 1] };
  const { array: rounded, rowStride, isTransposed } = gemmOperand(lowering, flat, gemmInput, [], false);
  return { ...rounded, shape: flat.shape, strides: isTransposed ? [1, rowStride] : [rowStride, 1] };
}

/** The dtype of the accumulated result. Half floats are multiplied as f32 if the backend has no half-float GEMM. */
function accumulatorDtype({ backend }: Lowering, dtype: Dtype): GemmInputDtype {
  if (dtype === "f64") return "f64";
  return backend.capabilities.multipliesHalfFloats && (dtype === "f16" || dtype === "bf16") ? dtype : "f32";
}

/** A bias for a fused epilogue: of the GEMM's dtype, contiguous, and aligned in each matrix of a batch. */
function biasVector(lowering: Lowering, bias: DeviceArray, dtype: GemmInputDtype): DeviceArray {
  const { shape, strides, storage } = bias;
  const step = biasAlignment / dtypes[dtype].bytes;
  const isUnitStride = bias.dtype === dtype && (strides.at(-1) === 1 || shape.at(-1) === 1);
  const isAligned =
    (storage?.span.address ?? 0) % biasAlignment === 0 &&
    shape.slice(0, -1).every((size, axis) => size === 1 || (strides[axis] ?? 0) % step === 0);
  if (isUnitStride && isAligned) return bias;
  const [n = 1] = shape.slice(-1);
  const padded = [...shape.slice(0, -1), Math.ceil(n / step) * step];
  const copy = { ...lowering.scratchArray(padded, dtype), shape };
  copyArray(lowering, bias, copy);
  return copy;
}

/** The stride from row to row. A single row may have any stride, but a GEMM needs one of at least n. */
function rowStrideOf({ shape, strides }: DeviceArray): number {
  const [n = 1] = shape.slice(-1);
  return Math.max(n, strides.at(-2) ?? n);
}

/** The only matrix of a batch of one. */
function firstMatrix(array: DeviceArray): DeviceArray {
  return { ...array, shape: array.shape.slice(-2), strides: array.strides.slice(-2) };
}

/** The left operand of a batch that shares one right matrix, with the batch as further rows; undefined if its strides do not merge. */
function foldBatch(left: DeviceArray, batch: Shape, m: number, k: number): DeviceArray | undefined {
  const strides = broadcastStrides(left, [...batch, m, k]);
  const rows = mergeAxes({ shape: [...batch, m], strides: strides.slice(0, -1) });
  if (!rows) return undefined;
  // The merged stride of a single row is arbitrary, but a GEMM needs one of at least k.
  const rowStride = rows.size === 1 ? (strides.at(-2) ?? k) : rows.stride;
  return { ...left, shape: [rows.size, k], strides: [rowStride, strides.at(-1) ?? 1] };
}

/**
 * Multiply-adds from which aligned rows are worth a copy. An estimate: a GPU needs a few microseconds for so many, as long as the
 * copy's launch takes.
 */
const minMacsForAlignment = 1 << 24;
/** Larger operands are not copied: a step may not have the memory for another copy of its largest tensors. */
const maxAlignedCopyBytes = 16 << 20;

/** An operand in a GEMM's terms. Copies it if a GEMM can't read its layout or dtype, or if a large GEMM reads aligned rows faster. */
function gemmOperand(
  lowering: Lowering,
  array: DeviceArray,
  dtype: GemmInputDtype,
  batch: Shape,
  isLarge: boolean,
): GemmOperand {
  const [rows = 1, columns = 1] = array.shape.slice(-2);
  const shape = [...batch, rows, columns];
  const strides = broadcastStrides(array, shape);
  const batchStride = batchStrideOf(batch, strides);
  const layout = matrixLayout(rows, columns, strides.slice(-2));
  if (batchStride !== undefined && layout) {
    const length = layout.isTransposed ? rows : columns;
    const isReadable =
      !isLarge ||
      !lowering.backend.capabilities.needsAlignedRows ||
      isShort(length, dtype) ||
      sizeOf(shape) * dtypes[dtype].bytes > maxAlignedCopyBytes ||
      areRowsAligned(dtype, layout, batchStride);
    if (array.dtype === dtype && isReadable) return { ...layout, batchStride, array };
    return convertInMemoryOrder(lowering, { ...array, shape, strides }, dtype, { ...layout, batchStride });
  }
  const copy = lowering.scratchArray(shape, dtype);
  copyArray(lowering, array, copy);
  return {
    rowStride: columns,
    batchStride: batch.length > 0 ? rows * columns : 0,
    array: { ...copy, strides: contiguousStrides(shape) },
  };
}

/**
 * Copies matrices to another dtype, or to aligned rows. The copy keeps the order of the axes in memory, so it also serves a GEMM of
 * the transposes. A matrix that a batch shares is copied once.
 */
function convertInMemoryOrder(
  lowering: Lowering,
  array: DeviceArray,
  dtype: GemmInputDtype,
  layout: MatrixLayout & { readonly batchStride: number },
): GemmOperand {
  const { shape, strides } = array;
  const axes = shape.map((_, axis) => axis).filter((axis) => (shape[axis] ?? 1) > 1 && strides[axis] !== 0);
  const order = axes.sort((a, b) => (strides[b] ?? 0) - (strides[a] ?? 0));
  const sizes = order.map((axis) => shape[axis] ?? 1);
  const sourceStrides = order.map((axis) => strides[axis] ?? 0);
  const padded = [...sizes.slice(0, -1), paddedRowLength(sizes, dtype)];
  const copy = { ...lowering.scratchArray(padded, dtype), shape: sizes };
  copyArray(lowering, { ...array, shape: sizes, strides: sourceStrides }, copy);
  const copyStrides = contiguousStrides(padded);
  if (isSameShape(copyStrides, sourceStrides)) return { ...layout, array: copy };
  // The copy has no gaps, so its strides are smaller than the source's.
  const strideInCopy = (stride: number): number => copyStrides[sourceStrides.indexOf(stride)] ?? stride;
  const { rowStride, batchStride } = layout;
  return {
    ...layout,
    rowStride: strideInCopy(rowStride),
    batchStride: strideInCopy(batchStride),
    array: copy,
  };
}

/** Rows with this alignment are read with the largest loads; others are read element by element. */
const rowAlignment = maxVectorBytes;

/** True if all rows are aligned, provided that the first one is. */
function areRowsAligned(dtype: GemmInputDtype, { rowStride }: MatrixLayout, batchStride: number): boolean {
  const { bytes } = dtypes[dtype];
  return [rowStride, batchStride].every((stride) => (stride * bytes) % rowAlignment === 0);
}

/** The row length with padding, so that every row is aligned. The last size is a row's length. */
function paddedRowLength(sizes: Shape, dtype: GemmInputDtype): number {
  const [length = 1] = sizes.slice(-1);
  const step = rowAlignment / dtypes[dtype].bytes;
  return sizes.length > 1 && !isShort(length, dtype) ? Math.ceil(length / step) * step : length;
}

/** True if padding to the alignment would make a row noticeably longer. */
function isShort(length: number, dtype: GemmInputDtype): boolean {
  return length * dtypes[dtype].bytes < 4 * rowAlignment;
}

/** The stride from matrix to matrix: 0 if all share one; undefined if no single stride exists. */
export function batchStrideOf(batch: Shape, strides: readonly number[]): number | undefined {
  const merged = mergeAxes({ shape: batch, strides });
  return merged?.size === 1 ? 0 : merged?.stride;
}

function matrixLayout(rows: number, columns: number, strides: readonly number[]): MatrixLayout | undefined {
  const [rowStride = 0, columnStride = 0] = strides;
  if ((columnStride === 1 || columns === 1) && (rowStride >= columns || rows === 1)) {
    return { rowStride: rows === 1 ? Math.max(columns, rowStride) : rowStride };
  }
  if ((rowStride === 1 || rows === 1) && (columnStride >= rows || columns === 1)) {
    return { rowStride: columns === 1 ? Math.max(rows, columnStride) : columnStride, isTransposed: true };
  }
  return undefined;
}
