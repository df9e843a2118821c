/** Lowers a product of matrices to `gemm`: finds how the operands lie, folds batches, copies only what gemm can't read. */

import { biasAlignment } from "../../driver/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import type { GemmInputDtype, GemmProblem, MatrixLayout } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import {
  broadcastStrides,
  contiguousStrides,
  type DeviceArray,
  isContiguous,
  joinAxes,
} from "../device-array.js";
import type { Lowering } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { isSameShape, type Shape, sizeOf } from "../shape.js";
import { lowerSkinnyGemm, maxSkinny } from "./skinny-gemm.js";

/** A matrix, or a batch of them, as gemm takes it. */
interface Matrices extends MatrixLayout {
  readonly array: DeviceArray;
}

/**
 * `output[batch…, m, n] = left[batch…, m, k] · right[batch…, k, n] + bias`; the output's last axis lies side by side, and
 * its batch at equal steps. Batches of the operands stretch to the output's; so does the bias, which is [n] or [batch, 1, n].
 */
export function lowerGemm(
  lowering: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  output: DeviceArray,
  bias?: DeviceArray,
): void {
  const batch = output.shape.slice(0, -2);
  const [m = 1, n = 1] = output.shape.slice(-2);
  const k = left.shape.at(-1) ?? 1;
  const dtype = gemmDtype(lowering, output.dtype);
  const operandDtype = roundsTo(lowering, dtype) ?? dtype;
  if (!output.storage) return;
  if (k === 0 || !left.storage || !right.storage) {
    if (bias) copyArray(lowering, bias, output);
    else fillWith(lowering, output, 0);
    return;
  }
  const target = output.dtype === dtype ? output : lowering.scratchArray(output.shape, dtype);
  const batchStride = batchStrideOf(batch, target.strides) ?? m * n;
  if (!target.storage) return;
  const size = sizeOf(batch);
  const isShared = batch.length > 0 && sizeOf(right.shape.slice(0, -2)) === 1 && isContiguous(target);
  const folded = isShared ? foldBatch(left, batch, m, k) : undefined;
  if (folded) {
    const rows = { ...output, shape: [size * m, n], strides: [n, 1] };
    if (lowerSkinnyGemm(lowering, folded, asMatrix(right), rows, bias)) return;
  } else if (batch.length === 0 && lowerSkinnyGemm(lowering, left, right, output, bias)) return;
  // A library adds the bias at the end; our own kernels find it in the output, and add to it.
  const added = bias && lowering.backend.capabilities.fusesBias ? vectorOf(lowering, bias, dtype) : undefined;
  const beta = bias && !added ? 1 : 0;
  if (bias && !added) copyArray(lowering, bias, target);
  const isLarge = size * m * n * k >= minForOrder;
  const a = matricesOf(lowering, folded ?? left, operandDtype, folded ? [] : batch, isLarge);
  const b = matricesOf(lowering, right, operandDtype, folded ? [] : batch, isLarge);
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
    ...(added?.storage && {
      bias: added.storage,
      biasBatchStride: batchStrideOf(batch, broadcastStrides(added, target.shape)) ?? 0,
    }),
  };
  const bytes = lowering.backend.gemmScratchBytes(problem);
  lowering.gemm(bytes > 0 ? { ...problem, scratch: lowering.scratch(bytes) } : problem);
  if (target !== output) copyArray(lowering, target, output);
}

/** What operands are rounded to on their way in, where that is allowed; what comes of them stays f32. */
function roundsTo({ backend, precision }: Lowering, dtype: GemmInputDtype): "bf16" | undefined {
  const isRounded = backend.capabilities.multipliesHalfFloats && precision === "bf16";
  return isRounded && dtype === "f32" ? "bf16" : undefined;
}

/**
 * [rows…, width] as products take it, [rows, width] rounded; nothing where they take it as it is, or are too narrow to round it.
 */
export function castForGemm(lowering: Lowering, array: DeviceArray): DeviceArray | undefined {
  const { shape, strides, dtype } = array;
  const to = dtype === "f32" ? roundsTo(lowering, dtype) : undefined;
  const rows = joinAxes({ shape: shape.slice(0, -1), strides: strides.slice(0, -1) });
  const [width = 1] = shape.slice(-1);
  if (!to || !rows || !array.storage || width <= maxSkinny || rows.size <= maxSkinny) return undefined;
  const flat = { ...array, shape: [rows.size, width], strides: [rows.stride, strides.at(-1) ?? 1] };
  const { array: rounded, rowStride, isTransposed } = matricesOf(lowering, flat, to, [], false);
  return { ...rounded, shape: flat.shape, strides: isTransposed ? [1, rowStride] : [rowStride, 1] };
}

/** Half floats are multiplied as they are where a library does it, and in f32 by our own kernels. */
function gemmDtype({ backend }: Lowering, dtype: Dtype): GemmInputDtype {
  if (dtype === "f64") return "f64";
  return backend.capabilities.multipliesHalfFloats && (dtype === "f16" || dtype === "bf16") ? dtype : "f32";
}

/** A bias as a library takes it: of the product's dtype, its elements side by side, each of a batch aligned. */
function vectorOf(lowering: Lowering, bias: DeviceArray, dtype: GemmInputDtype): DeviceArray {
  const { shape, strides, storage } = bias;
  const step = biasAlignment / dtypes[dtype].bytes;
  const isSideBySide = bias.dtype === dtype && (strides.at(-1) === 1 || shape.at(-1) === 1);
  const isAligned =
    (storage?.span.address ?? 0) % biasAlignment === 0 &&
    shape.slice(0, -1).every((size, axis) => size === 1 || (strides[axis] ?? 0) % step === 0);
  if (isSideBySide && isAligned) return bias;
  const [n = 1] = shape.slice(-1);
  const roomy = [...shape.slice(0, -1), Math.ceil(n / step) * step];
  const copy = { ...lowering.scratchArray(roomy, dtype), shape };
  copyArray(lowering, bias, copy);
  return copy;
}

/** From row to row; a single one has no step to take, and gemm wants one that fits all the same. */
function rowStrideOf({ shape, strides }: DeviceArray): number {
  const [n = 1] = shape.slice(-1);
  return Math.max(n, strides.at(-2) ?? n);
}

/** The one matrix of a batch of one. */
function asMatrix(array: DeviceArray): DeviceArray {
  return { ...array, shape: array.shape.slice(-2), strides: array.strides.slice(-2) };
}

/** With one right matrix for the whole batch, the batch is only more rows of the left one. */
function foldBatch(left: DeviceArray, batch: Shape, m: number, k: number): DeviceArray | undefined {
  const strides = broadcastStrides(left, [...batch, m, k]);
  const rows = joinAxes({ shape: [...batch, m], strides: strides.slice(0, -1) });
  if (!rows) return undefined;
  // A single row has no step to take; gemm wants one that fits all the same.
  const step = rows.size === 1 ? (strides.at(-2) ?? k) : rows.stride;
  return { ...left, shape: [rows.size, k], strides: [step, strides.at(-1) ?? 1] };
}

/** With so many multiplications a product on a GPU gains more from rows that lie well than a copy of them costs. */
const minForOrder = 1 << 24;
/** Larger operands are read as they lie: their copies would take memory that a step may not have. */
const maxBytesForOrder = 16 << 20;

/** The operand in gemm's words, or a copy that can be put so; or that a GPU reads faster, where the product is large. */
function matricesOf(
  lowering: Lowering,
  array: DeviceArray,
  dtype: GemmInputDtype,
  batch: Shape,
  isLarge: boolean,
): Matrices {
  const [rows = 1, columns = 1] = array.shape.slice(-2);
  const shape = [...batch, rows, columns];
  const strides = broadcastStrides(array, shape);
  const batchStride = batchStrideOf(batch, strides);
  const layout = matrixLayout(rows, columns, strides.slice(-2));
  if (batchStride !== undefined && layout) {
    const length = layout.isTransposed ? rows : columns;
    const isGood =
      !isLarge ||
      !lowering.backend.capabilities.needsAlignedRows ||
      isShort(length, dtype) ||
      sizeOf(shape) * dtypes[dtype].bytes > maxBytesForOrder ||
      lieWell(dtype, layout, batchStride);
    if (array.dtype === dtype && isGood) return { ...layout, batchStride, array };
    return convertedAsItLies(lowering, { ...array, shape, strides }, dtype, { ...layout, batchStride });
  }
  const copy = lowering.scratchArray(shape, dtype);
  copyArray(lowering, array, copy);
  const own = contiguousStrides(shape);
  return {
    rowStride: columns,
    batchStride: batch.length > 0 ? rows * columns : 0,
    array: { ...copy, strides: own },
  };
}

/**
 * Matrices in another dtype, or with rows that begin where a library wants them. Where they fill their memory without gaps, all of it is converted in the order in which it lies,
 * and seen as before: whoever multiplies the same ones, or their transposes, needs the same copy. What a batch shares is
 * converted once.
 */
function convertedAsItLies(
  lowering: Lowering,
  array: DeviceArray,
  dtype: GemmInputDtype,
  layout: MatrixLayout & { readonly batchStride: number },
): Matrices {
  const { shape, strides } = array;
  const axes = shape.map((_, axis) => axis).filter((axis) => (shape[axis] ?? 1) > 1 && strides[axis] !== 0);
  const order = axes.sort((a, b) => (strides[b] ?? 0) - (strides[a] ?? 0));
  const sizes = order.map((axis) => shape[axis] ?? 1);
  const steps = order.map((axis) => strides[axis] ?? 0);
  const roomy = [...sizes.slice(0, -1), roomFor(sizes, dtype)];
  const copy = { ...lowering.scratchArray(roomy, dtype), shape: sizes };
  copyArray(lowering, { ...array, shape: sizes, strides: steps }, copy);
  const own = contiguousStrides(roomy);
  if (isSameShape(own, steps)) return { ...layout, array: copy };
  // Gaps are left behind: each step becomes what it is without them.
  const closed = (stride: number): number => own[steps.indexOf(stride)] ?? stride;
  const { rowStride, batchStride } = layout;
  return { ...layout, rowStride: closed(rowStride), batchStride: closed(batchStride), array: copy };
}

/** What libraries load at once: rows that begin elsewhere they load element by element. */
const rowAlignment = 16;

/** Do all rows begin where a library wants them, if the first one does? */
function lieWell(dtype: GemmInputDtype, { rowStride }: MatrixLayout, batchStride: number): boolean {
  const { bytes } = dtypes[dtype];
  return [rowStride, batchStride].every((stride) => (stride * bytes) % rowAlignment === 0);
}

/** How many elements apart rows are to lie, so that each begins where a library wants it; the last of several sizes is a row's. */
function roomFor(sizes: Shape, dtype: GemmInputDtype): number {
  const [length = 1] = sizes.slice(-1);
  const step = rowAlignment / dtypes[dtype].bytes;
  return sizes.length > 1 && !isShort(length, dtype) ? Math.ceil(length / step) * step : length;
}

/** Such rows would be mostly gaps. */
function isShort(length: number, dtype: GemmInputDtype): boolean {
  return length * dtypes[dtype].bytes < 4 * rowAlignment;
}

/** One matrix after the other at equal steps, or the same one for all (0). */
export function batchStrideOf(batch: Shape, strides: readonly number[]): number | undefined {
  const joined = joinAxes({ shape: batch, strides });
  return joined?.size === 1 ? 0 : joined?.stride;
}

function matrixLayout(rows: number, columns: number, strides: readonly number[]): MatrixLayout | undefined {
  const [down = 0, across = 0] = strides;
  if ((across === 1 || columns === 1) && (down >= columns || rows === 1)) {
    return { rowStride: rows === 1 ? Math.max(columns, down) : down };
  }
  if ((down === 1 || rows === 1) && (across >= rows || columns === 1)) {
    return { rowStride: columns === 1 ? Math.max(rows, across) : across, isTransposed: true };
  }
  return undefined;
}
