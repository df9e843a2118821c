/**
 * f32 products with a side of a few elements, on a GPU: sums along rows, down columns, or of a few terms. A library fills its
 * tiles with little, and as row and column kernels they become one with what stands around them.
 */

import {
  type ColumnKernel,
  type Expression,
  iterateElements,
  iterateRows,
  type RowKernel,
  term,
} from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";
import { type DeviceArray, extentOf, type Layout, transposed } from "../device-array.js";
import type { Lowering } from "../op.js";

/** As many values as a column kernel adds up at once. */
export const maxSkinny = 4;

/** Rows, or columns, below which there is too little to do side by side. */
const minDmma = 32;

/** `output[m, n] = left[m, k] · right[k, n] + bias[n]`, of f32; says whether it was narrow, and so is done. */
export function lowerSkinnyGemm(
  lowering: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  output: DeviceArray,
  bias: DeviceArray | undefined,
): boolean {
  if (!lowering.backend.capabilities.lowersSkinnyGemms) return false;
  const all = [left, right, output, ...(bias ? [bias] : [])];
  if (all.some(({ dtype, storage }) => dtype !== "f32" || !storage)) return false;
  const [m = 1, n = 1] = output.shape;
  const k = left.shape[1] ?? 1;
  if (k <= maxSkinny && n >= minDmma) sumTerms(lowering, left, right, output, bias);
  else if (n <= maxSkinny && m >= minDmma && k >= minDmma && left.strides[1] === 1)
    sumRows(lowering, left, right, output, bias);
  else if (m <= maxSkinny && n >= minDmma && right.strides[1] === 1 && !bias)
    sumColumns(lowering, left, right, output);
  else if (n <= maxSkinny && m >= minDmma && left.strides[0] === 1 && !bias)
    sumColumns(lowering, transposed(right), transposed(left), transposed(output));
  else return false;
  return true;
}

/** A few terms: each element is their sum. */
function sumTerms(
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
    kernel: termsKernel(lowering.op, k, bias !== undefined),
    iteration: iterateElements(
      shape,
      operands.map(({ strides }) => strides),
    ),
    operands: storagesOf(operands),
  });
}

/** A few columns of the output: so many sums for each row of the left. */
function sumRows(
  lowering: Lowering,
  left: DeviceArray,
  right: DeviceArray,
  output: DeviceArray,
  bias: DeviceArray | undefined,
): void {
  const [m = 1, n = 1] = output.shape;
  const shape = left.shape;
  const each = Array.from({ length: n }, (_, index) => index);
  const inputs = [
    left,
    ...each.map((index) => transposed(columnOf(lowering, right, index, [shape[1] ?? 1, m]))),
    ...(bias ? each.map((index) => columnOf(lowering, asRow(bias), index, [m, 1])) : []),
  ];
  const operands = [...inputs, ...each.map((index) => columnOf(lowering, output, index, [m, 1]))];
  lowering.row({
    kernel: rowsKernel(lowering.op, n, bias !== undefined),
    iteration: iterateRows(
      shape,
      operands.map(({ strides }) => strides),
      1,
    ),
    operands: storagesOf(operands),
  });
}

/** A few rows of the output: so many sums down each column of the right. */
function sumColumns(lowering: Lowering, left: DeviceArray, right: DeviceArray, output: DeviceArray): void {
  const [m = 1, n = 1] = output.shape;
  const k = left.shape[1] ?? 1;
  const each = Array.from({ length: m }, (_, index) => index);
  const lefts = each.map((index) => rowOf(lowering, left, index, [1, k]));
  lowering.column({
    ...{ kernel: columnsKernel(lowering.op, m, output.strides[1] ?? 1), rows: k, columns: n },
    strides: [
      ...lefts.map(({ strides }) => ({ row: strides[1] ?? 0, column: "none" as const })),
      { row: right.strides[0] ?? 0, column: "unit" },
    ],
    operands: storagesOf([...lefts, right, ...each.map((index) => rowOf(lowering, output, index, [1, n]))]),
  });
}

/** One column of a matrix, stretched over a shape's columns. */
function columnOf(
  lowering: Lowering,
  matrix: DeviceArray,
  index: number,
  shape: readonly number[],
): DeviceArray {
  const [down = 0, across = 0] = matrix.strides;
  const isOne = matrix.shape[0] === 1;
  return partOf(lowering, matrix, index * across, { shape, strides: [isOne ? 0 : down, 0] });
}

/** One row of a matrix, stretched over a shape's rows. */
function rowOf(
  lowering: Lowering,
  matrix: DeviceArray,
  index: number,
  shape: readonly number[],
): DeviceArray {
  const [down = 0, across = 0] = matrix.strides;
  return partOf(lowering, matrix, index * down, { shape, strides: [0, across] });
}

function partOf(
  lowering: Lowering,
  { dtype, storage }: DeviceArray,
  offset: number,
  layout: Layout,
): DeviceArray {
  const part = storage && lowering.view(storage, 4 * offset, 4 * extentOf(layout));
  return { ...layout, dtype, storage: part };
}

function asRow({ strides, ...rest }: DeviceArray): DeviceArray {
  return { ...rest, shape: [1, rest.shape.at(-1) ?? 1], strides: [0, strides.at(-1) ?? 1] };
}

function storagesOf(arrays: readonly DeviceArray[]): Storage[] {
  return arrays.flatMap(({ storage }) => storage ?? []);
}

/** Each is made once, so that its key is worked out once. */
const kernels = new Map<string, RowKernel | ColumnKernel>();

function once<K extends RowKernel | ColumnKernel>(key: string, make: () => K): K {
  const known = kernels.get(key) ?? make();
  kernels.set(key, known);
  return known as K;
}

const load = (input: number): Expression => term.load(input, "f32");
const ofFloats = (count: number) => Array.from({ length: count }, () => "f32" as const);

function termsKernel(name: string, k: number, hasBias: boolean): RowKernel {
  return once(`terms ${name} ${k} ${hasBias}`, () => {
    const terms = Array.from({ length: k }, (_, index) => term.mul(load(index), load(k + index)));
    const sum = terms.reduce((before, next) => term.add(before, next));
    const value = hasBias ? term.add(sum, load(2 * k)) : sum;
    return {
      ...{ name, inputs: ofFloats(2 * k + (hasBias ? 1 : 0)), scalars: [] },
      outputs: [{ dtype: "f32", per: "element" }],
      stages: [{ kind: "store", output: 0, value }],
    };
  });
}

function rowsKernel(name: string, n: number, hasBias: boolean): RowKernel {
  return once(`rows ${name} ${n} ${hasBias}`, () => {
    const each = Array.from({ length: n }, (_, index) => index);
    const sumOf = (index: number): Expression => term.reduced(index, "f32");
    return {
      ...{ name, inputs: ofFloats(1 + n + (hasBias ? n : 0)), scalars: [] },
      outputs: each.map(() => ({ dtype: "f32", per: "row" })),
      stages: [
        ...each.map((index) => ({
          ...({ kind: "reduce", op: "add" } as const),
          value: term.mul(load(0), load(1 + index)),
        })),
        ...each.map((index) => ({
          ...({ kind: "store", output: index } as const),
          value: hasBias ? term.add(sumOf(index), load(1 + n + index)) : sumOf(index),
        })),
      ],
    };
  });
}

/** The results of neighbouring columns stand `step` apart. */
function columnsKernel(name: string, m: number, step: number): ColumnKernel {
  return once(`columns ${name} ${m} ${step}`, () => ({
    ...{ name, inputs: ofFloats(m + 1), outputs: ofFloats(m), scalars: [], op: "add" },
    values: Array.from({ length: m }, (_, index) => term.mul(load(index), load(m))),
    ...(step !== 1 && { outputLayout: { stride: step } }),
  }));
}
