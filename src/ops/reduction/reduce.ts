/**
 * Lowers reductions. The reduced axes become the rows of a row kernel. If the kept axes are innermost in memory, they become the
 * columns of a column kernel. A few elements with gaps, such as those of a small window, are the inputs of an elementwise kernel. Long
 * rows are split into chunks, so that threads share a row, and the partial results are reduced again. The split depends on the shape
 * alone, and so do the bits.
 */

import {
  type ColumnKernel,
  type Dtype,
  dtypes,
  iterateElements,
  iterateRows,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { type KernelCall, rowCalls } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import {
  contiguousStrides,
  type DeviceArray,
  isContiguous,
  type Layout,
  mergeAxes,
} from "../device-array.js";
import type { Lowering } from "../op.js";
import { type Shape, sizeOf } from "../shape.js";
import { accumulatorType, applyFactor, type Reduction } from "./reduction.js";
import { isShort, reduceShort } from "./short-reduction.js";

/**
 * Longer rows are split into chunks, if there are too few rows to occupy all threads. The order of a sum follows from these two
 * numbers, so they are the same on every device.
 */
export const maxRowLength = 1 << 15;
const chunkLength = 1 << 12;

/**
 * Reduces `axes` of an array into `output`, which has the kept axes in order. If it is not contiguous, it has no other axes. The result is
 * multiplied by `factor`.
 */
export function lowerReduction(
  lowering: Lowering,
  reduction: Reduction,
  input: DeviceArray,
  axes: readonly number[],
  output: DeviceArray,
  factor = 1,
): void {
  if (!output.storage) return;
  if (!isContiguous(output)) {
    const [first, ...ordered] = inMemoryOrder(input, axes, output);
    lowerReduction(lowering, reduction, first, ...ordered, factor);
    return;
  }
  if (!input.storage) {
    fillWith(lowering, output, reduction.identity * factor);
    return;
  }
  const { kept, reduced } = splitAxes(input, axes);
  const columns = asColumns(lowering, kept, reduced);
  if (columns) {
    reduceColumns(lowering, reduction, input, columns, output, factor);
    return;
  }
  if (!isRow(reduced) && isShort(reduced)) {
    reduceShort(lowering, reduction, input, { kept, reduced }, output, factor);
    return;
  }
  const rows = rowsOf(lowering, input, axes);
  const length = sizeOf(rows.shape.slice(-1));
  const count = sizeOf(rows.shape.slice(0, -1));
  if (length > maxRowLength && count * 2 < length / chunkLength && isContiguous(rows)) {
    reduceInChunks(lowering, reduction, rows, output, factor);
    return;
  }
  reduceRows(lowering, reduction, rows, output, factor);
}

/** The same reduction with the kept axes as they are in the output's memory. */
function inMemoryOrder(
  input: DeviceArray,
  axes: readonly number[],
  output: DeviceArray,
): readonly [input: DeviceArray, axes: readonly number[], output: DeviceArray] {
  const { kept, reduced } = splitAxes(input, axes);
  const order = [...output.shape.keys()].sort((a, b) => (output.strides[b] ?? 0) - (output.strides[a] ?? 0));
  const ordered = (list: readonly number[]): number[] => order.map((axis) => list[axis] ?? 1);
  const shape = ordered(output.shape);
  return [
    {
      ...input,
      shape: [...shape, ...reduced.shape],
      strides: [...ordered(kept.strides), ...reduced.strides],
    },
    reduced.shape.map((_, axis) => shape.length + axis),
    { ...output, shape, strides: contiguousStrides(shape) },
  ];
}

/** An array as [kept…, row], with the reduced axes merged to one row; a copy if its strides do not merge. */
export function rowsOf(lowering: Lowering, input: DeviceArray, axes: readonly number[]): DeviceArray {
  const { kept, reduced } = splitAxes(input, axes);
  const shape = [...kept.shape, sizeOf(reduced.shape)];
  const merged = mergeAxes(reduced);
  if (merged && isRow(reduced)) return { ...input, shape, strides: [...kept.strides, merged.stride] };
  const permuted: Layout = {
    shape: [...kept.shape, ...reduced.shape],
    strides: [...kept.strides, ...reduced.strides],
  };
  const copy = lowering.scratchArray(permuted.shape, input.dtype);
  copyArray(lowering, { ...input, ...permuted }, copy);
  return { ...copy, shape, strides: contiguousStrides(shape) };
}

/** True if a row kernel can read the reduced axes as one row. */
function isRow(reduced: Layout): boolean {
  const merged = mergeAxes(reduced);
  return merged !== undefined && (merged.stride === 0 || merged.stride === 1 || merged.size === 1);
}

/** Sets every element to one number. */
export function fillWith(lowering: Pick<Lowering, "emit">, output: DeviceArray, value: number): void {
  lowering.emit(fillCalls(output, value));
}

export function fillCalls(output: DeviceArray, value: number): readonly KernelCall[] {
  if (!output.storage) return [];
  const iteration = iterateElements(output.shape, [output.strides]);
  return rowCalls({
    kernel: fillKernel(output.dtype),
    iteration,
    operands: [output.storage],
    // A computed NaN may have any bits; this one always has the same bits.
    scalars: [Number.isNaN(value) ? Number.NaN : value],
  });
}

const fills = new Map<Dtype, RowKernel>();

function fillKernel(dtype: Dtype): RowKernel {
  const { compute } = dtypes[dtype];
  const kernel = fills.get(dtype) ?? {
    name: "fill",
    inputs: [],
    outputs: [{ dtype, per: "element" }],
    scalars: [compute],
    stages: [{ kind: "store", output: 0, value: term.scalar(0, compute) }],
  };
  fills.set(dtype, kernel);
  return kernel;
}

/** The layouts of an array's kept axes and of its reduced axes, each in order. */
export function splitAxes(
  { shape, strides }: Layout,
  axes: readonly number[],
): { kept: Layout; reduced: Layout } {
  const layoutOf = (isReduced: boolean): Layout => {
    const selected = shape.flatMap((_, axis) => (axes.includes(axis) === isReduced ? [axis] : []));
    return {
      shape: selected.map((axis) => shape[axis] ?? 1),
      strides: selected.map((axis) => strides[axis] ?? 0),
    };
  };
  return { kept: layoutOf(false), reduced: layoutOf(true) };
}

interface Columns {
  readonly rows: number;
  readonly columns: number;
  readonly rowStride: number;
}

/** The array as a matrix whose columns are reduced: the kept axes are contiguous, and the reduced axes merge to one stride. */
function asColumns({ backend }: Lowering, kept: Layout, reduced: Layout): Columns | undefined {
  const [columns, rows] = [mergeAxes(kept), mergeAxes(reduced)];
  if (!columns || !rows || columns.stride !== 1 || rows.size < 2) return undefined;
  // The CPU reduces a vector of 4 columns at a time. On a GPU the threads of one multiprocessor share a column.
  const isShared = backend.capabilities.splitsColumns && rows.size <= maxRowLength;
  if (columns.size < (isShared ? 2 : 4)) return undefined;
  return { rows: rows.size, columns: columns.size, rowStride: rows.stride };
}

const rowKernels = new Map<string, RowKernel>();
const columnKernels = new Map<string, ColumnKernel>();

function reduceRows(
  lowering: Lowering,
  reduction: Reduction,
  rows: DeviceArray,
  output: DeviceArray,
  factor: number,
): void {
  if (!rows.storage || !output.storage) return;
  const key = `${reduction.name} ${rows.dtype} ${output.dtype}`;
  const type = accumulatorType(reduction, rows.dtype);
  const kernel: RowKernel = rowKernels.get(key) ?? {
    name: reduction.name,
    inputs: [rows.dtype],
    outputs: [{ dtype: output.dtype, per: "row" }],
    scalars: [dtypes[output.dtype].compute],
    stages: [
      { kind: "reduce", op: reduction.op, value: reduction.value(term.load(0, dtypes[rows.dtype].compute)) },
      {
        kind: "store",
        output: 0,
        value: applyFactor(reduction, term.convert(term.reduced(0, type), dtypes[output.dtype].compute)),
      },
    ],
  };
  rowKernels.set(key, kernel);
  const kept = rows.shape.slice(0, -1);
  lowering.row({
    kernel,
    iteration: iterateRows(rows.shape, [rows.strides, [...contiguousStrides(kept), 0]], 1),
    operands: [rows.storage, output.storage],
    scalars: [factor],
  });
}

function reduceColumns(
  lowering: Lowering,
  reduction: Reduction,
  input: DeviceArray,
  { rows, columns, rowStride }: Columns,
  output: DeviceArray,
  factor: number,
): void {
  if (!input.storage || !output.storage) return;
  const isFinal = factor === 1 && !reduction.finish;
  // A total that is not final may be out of a half float's range.
  const accumulator = accumulatorType(reduction, input.dtype);
  const totals =
    isFinal || output.dtype === accumulator ? output : lowering.scratchArray(output.shape, accumulator);
  if (!totals.storage) return;
  const key = `${reduction.name} ${input.dtype} ${totals.dtype}`;
  const kernel: ColumnKernel = columnKernels.get(key) ?? {
    name: reduction.name,
    inputs: [input.dtype],
    outputs: [totals.dtype],
    scalars: [],
    op: reduction.op,
    values: [reduction.value(term.load(0, dtypes[input.dtype].compute))],
  };
  columnKernels.set(key, kernel);
  lowering.column({
    kernel,
    rows,
    columns,
    strides: [{ row: rowStride, column: "unit" }],
    operands: [input.storage, totals.storage],
  });
  if (!isFinal) applyFinish(lowering, reduction, totals, output, factor);
}

const finishKernels = new Map<string, RowKernel>();

function applyFinish(
  lowering: Lowering,
  reduction: Reduction,
  totals: DeviceArray,
  output: DeviceArray,
  factor: number,
): void {
  if (!totals.storage || !output.storage) return;
  const { compute } = dtypes[output.dtype];
  const key = `${reduction.name} ${totals.dtype} ${output.dtype}`;
  const kernel: RowKernel = finishKernels.get(key) ?? {
    name: reduction.name,
    inputs: [totals.dtype],
    outputs: [{ dtype: output.dtype, per: "element" }],
    scalars: [compute],
    stages: [
      {
        kind: "store",
        output: 0,
        value: applyFactor(reduction, term.convert(term.load(0, dtypes[totals.dtype].compute), compute)),
      },
    ],
  };
  finishKernels.set(key, kernel);
  lowering.row({
    kernel,
    iteration: iterateElements(output.shape, [totals.strides, output.strides]),
    operands: [totals.storage, output.storage],
    scalars: [factor],
  });
}

/** Splits every row into chunks of one length and a shorter last one, and reduces the chunks' results. */
function reduceInChunks(
  lowering: Lowering,
  reduction: Reduction,
  rows: DeviceArray,
  output: DeviceArray,
  factor: number,
): void {
  if (!rows.storage) return;
  const length = rows.shape.at(-1) ?? 1;
  const count = sizeOf(rows.shape.slice(0, -1));
  const fullChunks = Math.floor(length / chunkLength);
  const restLength = length - fullChunks * chunkLength;
  const chunkCount = fullChunks + (restLength > 0 ? 1 : 0);
  const { dtype } = rows;
  const accumulator: Dtype = accumulatorType(reduction, dtype);
  const { bytes } = dtypes[dtype];
  const partials = lowering.scratchArray([count, chunkCount], accumulator);
  const { finish: _, ...unfinished } = reduction;
  const chunkReduction: Reduction = { ...unfinished, name: `${reduction.name} of a chunk` };
  for (let row = 0; row < count; row++) {
    const rowOffset = row * length * bytes;
    const fullView = lowering.view(rows.storage, rowOffset, fullChunks * chunkLength * bytes);
    reduceRows(
      lowering,
      chunkReduction,
      contiguous(fullView, [fullChunks, chunkLength], dtype),
      partialsOf(row, 0, fullChunks),
      1,
    );
    if (restLength === 0) continue;
    const restView = lowering.view(
      rows.storage,
      rowOffset + fullChunks * chunkLength * bytes,
      restLength * bytes,
    );
    reduceRows(
      lowering,
      chunkReduction,
      contiguous(restView, [1, restLength], dtype),
      partialsOf(row, fullChunks, 1),
      1,
    );
  }
  const partialReduction: Reduction = {
    ...reduction,
    name: `${reduction.name} of partials`,
    value: (x) => x,
  };
  reduceRows(lowering, partialReduction, partials, output, factor);

  function partialsOf(row: number, first: number, size: number): DeviceArray {
    const start = (row * chunkCount + first) * dtypes[accumulator].bytes;
    const storage =
      partials.storage && lowering.view(partials.storage, start, size * dtypes[accumulator].bytes);
    return contiguous(storage, [size], accumulator);
  }
}

function contiguous(storage: DeviceArray["storage"], shape: Shape, dtype: Dtype): DeviceArray {
  return { storage, shape, strides: contiguousStrides(shape), dtype };
}
