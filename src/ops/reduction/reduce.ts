/**
 * How reductions run: the reduced axes become the rows of a row kernel, or, where the kept axes are the fast ones, the
 * rows that a column kernel adds up. Long rows are cut into parts and the parts reduced in turn, so that threads share
 * them; where the cuts lie follows from the shape alone, and so do the bits.
 */

import {
  type ColumnKernel,
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  iterateRows,
  type ReduceOp,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { type KernelCall, rowCalls } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray, isContiguous, joinAxes, type Layout } from "../device-array.js";
import type { Lowering } from "../op.js";
import { type Shape, sizeOf } from "../shape.js";

/** One value reduced over a row: `finish(reduce(op, value(x)) · factor)`. Kernels are kept by the name. */
export interface Reduction {
  readonly name: string;
  readonly op: ReduceOp;
  /** What is reduced, of one element. */
  readonly value: (x: Expression) => Expression;
  /** What becomes of the whole; it stays as it is unless this is given. */
  readonly finish?: (total: Expression) => Expression;
  /** What a reduction of nothing is, before the factor. */
  readonly identity: number;
}

/** Rows longer than this are cut. */
export const longestRow = 1 << 15;
const chunkLength = 1 << 12;

/**
 * Reduces `axes` of an array into `output`, whose elements are the kept axes in order; what comes of it is multiplied by
 * `factor`.
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
  const rows = rowsOf(lowering, input, axes);
  const length = sizeOf(rows.shape.slice(-1));
  const count = sizeOf(rows.shape.slice(0, -1));
  if (length > longestRow && count * 2 < length / chunkLength && isContiguous(rows)) {
    reduceInChunks(lowering, reduction, rows, output, factor);
    return;
  }
  reduceRows(lowering, reduction, rows, output, factor);
}

/** An array seen as [kept…, row] with the reduced axes as one row; copied where its memory does not allow that. */
export function rowsOf(lowering: Lowering, input: DeviceArray, axes: readonly number[]): DeviceArray {
  const { kept, reduced } = splitAxes(input, axes);
  const shape = [...kept.shape, sizeOf(reduced.shape)];
  const joined = joinAxes(reduced);
  if (joined && (joined.stride === 0 || joined.stride === 1 || joined.size === 1)) {
    return { ...input, shape, strides: [...kept.strides, joined.stride] };
  }
  const whole: Layout = {
    shape: [...kept.shape, ...reduced.shape],
    strides: [...kept.strides, ...reduced.strides],
  };
  const copy = lowering.scratchArray(whole.shape, input.dtype);
  copyArray(lowering, { ...input, ...whole }, copy);
  return { ...copy, shape, strides: contiguousStrides(shape) };
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
    // A NaN that was computed has whatever bits the engine gave it; this one has always the same.
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

/** An array's kept axes and its reduced ones, each in order. */
export function splitAxes(
  { shape, strides }: Layout,
  axes: readonly number[],
): { kept: Layout; reduced: Layout } {
  const pick = (wanted: boolean): Layout => {
    const chosen = shape.flatMap((_, axis) => (axes.includes(axis) === wanted ? [axis] : []));
    return {
      shape: chosen.map((axis) => shape[axis] ?? 1),
      strides: chosen.map((axis) => strides[axis] ?? 0),
    };
  };
  return { kept: pick(false), reduced: pick(true) };
}

interface Columns {
  readonly rows: number;
  readonly columns: number;
  readonly rowStride: number;
}

/** The kept axes lie side by side, and the reduced ones step over them. */
function asColumns({ backend }: Lowering, kept: Layout, reduced: Layout): Columns | undefined {
  const [across, down] = [joinAxes(kept), joinAxes(reduced)];
  if (!across || !down || across.stride !== 1 || down.size < 2) return undefined;
  // The CPU takes a vector of columns at a time. A GPU's threads share a column, but only those of one multiprocessor.
  const isShared = backend.capabilities.splitsColumns && down.size <= longestRow;
  if (across.size < (isShared ? 2 : 4)) return undefined;
  return { rows: down.size, columns: across.size, rowStride: down.stride };
}

const rowKernels = new Map<string, RowKernel>();
const columnKernels = new Map<string, ColumnKernel>();

/** Half floats and small integers are added up in their wider type. */
function sumType(reduction: Reduction, input: Dtype): Compute {
  return reduction.value(term.load(0, dtypes[input].compute)).type;
}

function reduceRows(
  lowering: Lowering,
  reduction: Reduction,
  rows: DeviceArray,
  output: DeviceArray,
  factor: number,
): void {
  if (!rows.storage || !output.storage) return;
  const key = `${reduction.name} ${rows.dtype} ${output.dtype}`;
  const type = sumType(reduction, rows.dtype);
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
        value: finished(reduction, term.convert(term.reduced(0, type), dtypes[output.dtype].compute)),
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

function finished({ finish = (total) => total }: Reduction, total: Expression): Expression {
  return finish(term.mul(total, term.scalar(0, total.type)));
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
  const isDone = factor === 1 && !reduction.finish;
  // A half float may not hold what is only multiplied or finished later.
  const wide = sumType(reduction, input.dtype);
  const totals = isDone || output.dtype === wide ? output : lowering.scratchArray(output.shape, wide);
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
  if (!isDone) finishTotals(lowering, reduction, totals, output, factor);
}

const epilogueKernels = new Map<string, RowKernel>();

function finishTotals(
  lowering: Lowering,
  reduction: Reduction,
  totals: DeviceArray,
  output: DeviceArray,
  factor: number,
): void {
  if (!totals.storage || !output.storage) return;
  const { compute } = dtypes[output.dtype];
  const key = `${reduction.name} ${totals.dtype} ${output.dtype}`;
  const kernel: RowKernel = epilogueKernels.get(key) ?? {
    name: reduction.name,
    inputs: [totals.dtype],
    outputs: [{ dtype: output.dtype, per: "element" }],
    scalars: [compute],
    stages: [
      {
        kind: "store",
        output: 0,
        value: finished(reduction, term.convert(term.load(0, dtypes[totals.dtype].compute), compute)),
      },
    ],
  };
  epilogueKernels.set(key, kernel);
  lowering.row({
    kernel,
    iteration: iterateElements(output.shape, [totals.strides, output.strides]),
    operands: [totals.storage, output.storage],
    scalars: [factor],
  });
}

/** Cuts every row into parts of one length and a shorter last one, and reduces the parts' results. */
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
  const whole = Math.floor(length / chunkLength);
  const rest = length - whole * chunkLength;
  const parts = whole + (rest > 0 ? 1 : 0);
  const { dtype } = rows;
  const wide: Dtype = sumType(reduction, dtype);
  const { bytes } = dtypes[dtype];
  const partials = lowering.scratchArray([count, parts], wide);
  const { finish: _, ...unfinished } = reduction;
  const ofPart: Reduction = { ...unfinished, name: `${reduction.name} of a part` };
  for (let row = 0; row < count; row++) {
    const at = row * length * bytes;
    const main = lowering.view(rows.storage, at, whole * chunkLength * bytes);
    reduceRows(lowering, ofPart, contiguous(main, [whole, chunkLength], dtype), part(row, 0, whole), 1);
    if (rest === 0) continue;
    const tail = lowering.view(rows.storage, at + whole * chunkLength * bytes, rest * bytes);
    reduceRows(lowering, ofPart, contiguous(tail, [1, rest], dtype), part(row, whole, 1), 1);
  }
  const again: Reduction = { ...reduction, name: `${reduction.name} of parts`, value: (x) => x };
  reduceRows(lowering, again, partials, output, factor);

  function part(row: number, first: number, size: number): DeviceArray {
    const start = (row * parts + first) * dtypes[wide].bytes;
    const storage = partials.storage && lowering.view(partials.storage, start, size * dtypes[wide].bytes);
    return contiguous(storage, [size], wide);
  }
}

function contiguous(storage: DeviceArray["storage"], shape: Shape, dtype: Dtype): DeviceArray {
  return { storage, shape, strides: contiguousStrides(shape), dtype };
}
