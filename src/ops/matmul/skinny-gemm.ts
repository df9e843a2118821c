/**
 * Skinny GEMMs on a GPU: f32 matrix products with m, n or k of a few elements. A GEMM kernel would leave most of a tile empty.
 * Row and column kernels have no tiles, and can fuse with the kernels before and after them.
 */

import {
  type ColumnKernel,
  dtypes,
  type Expression,
  iterateElements,
  iterateRows,
  maxColumnValues,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { warpSize } from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { type DeviceArray, extentOf, type Layout, transposed } from "../device-array.js";
import type { Lowering } from "../op.js";

/** The largest skinny side. With few rows in the result, a column kernel reduces one value for each row, and that is its limit. */
export const maxSkinny = maxColumnValues;

/** The other sides are at least a warp long: shorter ones would leave lanes idle. */
const minParallel = warpSize;

/** Lowers `output[m, n] = left[m, k] · right[k, n] + bias[n]` of f32 if it is skinny. Returns false if it is not. */
export function lowerSkinnyGemm(
  lowering: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  output: DeviceArray,
  bias: DeviceArray | undefined,
): boolean {
  if (!lowering.backend.capabilities.lowersSkinnyGemms) return false;
  const arrays = [left, right, output, ...(bias ? [bias] : [])];
  if (arrays.some(({ dtype, storage }) => dtype !== "f32" || !storage)) return false;
  const [m = 1, n = 1] = output.shape;
  const k = left.shape[1] ?? 1;
  if (k <= maxSkinny && n >= minParallel) lowerSmallK(lowering, left, right, output, bias);
  else if (n <= maxSkinny && m >= minParallel && k >= minParallel && left.strides[1] === 1)
    lowerFewColumns(lowering, left, right, output, bias);
  else if (m <= maxSkinny && n >= minParallel && right.strides[1] === 1 && !bias)
    lowerFewRows(lowering, left, right, output);
  else if (n <= maxSkinny && m >= minParallel && left.strides[0] === 1 && !bias)
    lowerFewRows(lowering, transposed(right), transposed(left), transposed(output));
  else return false;
  return true;
}

/** Small k: each element is a sum of k products, without a loop. */
function lowerSmallK(
  lowering: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  output: DeviceArray,
  bias: DeviceArray | undefined,
): void {
  const { shape } = output;
  const k = left.shape[1] ?? 1;
  const inputs = [
    ...Array.from({ length: k }, (_, index) => columnOf(lowering, left, index, shape)),
    ...Array.from({ length: k }, (_, index) => rowOf(lowering, right, index, shape)),
    ...(bias ? [rowOf(lowering, asRow(bias), 0, shape)] : []),
  ];
  const operands = [...inputs, output];
  lowering.row({
    kernel: smallKKernel(lowering.op, k, bias !== undefined),
    iteration: iterateElements(
      shape,
      operands.map(({ strides }) => strides),
    ),
    operands: storagesOf(operands),
  });
}

/** Few output columns: each row of the left operand is reduced to n sums. */
function lowerFewColumns(
  lowering: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  output: DeviceArray,
  bias: DeviceArray | undefined,
): void {
  const [m = 1, n = 1] = output.shape;
  const shape = left.shape;
  const indices = Array.from({ length: n }, (_, index) => index);
  const inputs = [
    left,
    ...indices.map((index) => transposed(columnOf(lowering, right, index, [shape[1] ?? 1, m]))),
    ...(bias ? indices.map((index) => columnOf(lowering, asRow(bias), index, [m, 1])) : []),
  ];
  const operands = [...inputs, ...indices.map((index) => columnOf(lowering, output, index, [m, 1]))];
  lowering.row({
    kernel: fewColumnsKernel(lowering.op, n, bias !== undefined),
    iteration: iterateRows(
      shape,
      operands.map(({ strides }) => strides),
      1,
    ),
    operands: storagesOf(operands),
  });
}

/** Few output rows: each column of the right operand is reduced to m sums. */
function lowerFewRows(lowering: Lowering, left: DeviceArray, right: DeviceArray, output: DeviceArray): void {
  const [m = 1, n = 1] = output.shape;
  const k = left.shape[1] ?? 1;
  const indices = Array.from({ length: m }, (_, index) => index);
  const lefts = indices.map((index) => rowOf(lowering, left, index, [1, k]));
  lowering.column({
    ...{ kernel: fewRowsKernel(lowering.op, m, output.strides[1] ?? 1), rows: k, columns: n },
    strides: [
      ...lefts.map(({ strides }) => ({ row: strides[1] ?? 0, column: "none" as const })),
      { row: right.strides[0] ?? 0, column: "unit" },
    ],
    operands: storagesOf([
      ...lefts,
      right,
      ...indices.map((index) => rowOf(lowering, output, index, [1, n])),
    ]),
  });
}

/** One column of a matrix, broadcast over a shape's columns. */
function columnOf(
  lowering: Lowering,
  matrix: DeviceArray,
  index: number,
  shape: readonly number[],
): DeviceArray {
  const [rowStride = 0, columnStride = 0] = matrix.strides;
  const isSingleRow = matrix.shape[0] === 1;
  return viewAt(lowering, matrix, index * columnStride, { shape, strides: [isSingleRow ? 0 : rowStride, 0] });
}

/** One row of a matrix, broadcast over a shape's rows. */
function rowOf(
  lowering: Lowering,
  matrix: DeviceArray,
  index: number,
  shape: readonly number[],
): DeviceArray {
  const [rowStride = 0, columnStride = 0] = matrix.strides;
  return viewAt(lowering, matrix, index * rowStride, { shape, strides: [0, columnStride] });
}

function viewAt(
  lowering: Lowering,
  { dtype, storage }: DeviceArray,
  offset: number,
  layout: Layout,
): DeviceArray {
  const { bytes } = dtypes[dtype];
  const view = storage && lowering.view(storage, bytes * offset, bytes * extentOf(layout));
  return { ...layout, dtype, storage: view };
}

function asRow({ strides, ...rest }: DeviceArray): DeviceArray {
  return { ...rest, shape: [1, rest.shape.at(-1) ?? 1], strides: [0, strides.at(-1) ?? 1] };
}

function storagesOf(arrays: readonly DeviceArray[]): Storage[] {
  return arrays.flatMap(({ storage }) => storage ?? []);
}

/** Each kernel is created once, so that its key is computed once. */
const kernels = new Map<string, RowKernel | ColumnKernel>();

function cachedKernel<K extends RowKernel | ColumnKernel>(key: string, make: () => K): K {
  const kernel = kernels.get(key) ?? make();
  kernels.set(key, kernel);
  return kernel as K;
}

const load = (input: number): Expression => term.load(input, "f32");
const f32s = (count: number) => Array.from({ length: count }, () => "f32" as const);

function smallKKernel(name: string, k: number, hasBias: boolean): RowKernel {
  return cachedKernel(`terms ${name} ${k} ${hasBias}`, () => {
    const products = Array.from({ length: k }, (_, index) => term.mul(load(index), load(k + index)));
    const sum = products.reduce((partial, product) => term.add(partial, product));
    const value = hasBias ? term.add(sum, load(2 * k)) : sum;
    return {
      ...{ name, inputs: f32s(2 * k + (hasBias ? 1 : 0)), scalars: [] },
      outputs: [{ dtype: "f32", per: "element" }],
      stages: [{ kind: "store", output: 0, value }],
    };
  });
}

function fewColumnsKernel(name: string, n: number, hasBias: boolean): RowKernel {
  return cachedKernel(`rows ${name} ${n} ${hasBias}`, () => {
    const indices = Array.from({ length: n }, (_, index) => index);
    const sumOf = (index: number): Expression => term.reduced(index, "f32");
    return {
      ...{ name, inputs: f32s(1 + n + (hasBias ? n : 0)), scalars: [] },
      outputs: indices.map(() => ({ dtype: "f32", per: "row" })),
      stages: [
        ...indices.map((index) => ({
          ...({ kind: "reduce", op: "add" } as const),
          value: term.mul(load(0), load(1 + index)),
        })),
        ...indices.map((index) => ({
          ...({ kind: "store", output: index } as const),
          value: hasBias ? term.add(sumOf(index), load(1 + n + index)) : sumOf(index),
        })),
      ],
    };
  });
}

/** `step`: the distance between the results of neighbouring columns, in elements. */
function fewRowsKernel(name: string, m: number, step: number): ColumnKernel {
  return cachedKernel(`columns ${name} ${m} ${step}`, () => ({
    ...{ name, inputs: f32s(m + 1), outputs: f32s(m), scalars: [], op: "add" },
    values: Array.from({ length: m }, (_, index) => term.mul(load(index), load(m))),
    ...(step !== 1 && { outputLayout: { stride: step } }),
  }));
}
