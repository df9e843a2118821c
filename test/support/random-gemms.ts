/**
 * GEMMs for the libraries of devices: random over dtypes, transposes, batches, padding, bias and activation,
 * with integers so small that every dtype has every sum exactly, in any order; and their expected results.
 */

import fc from "fast-check";
import { type FloatName, floatBytes } from "./encoded-values.js";

/** The layout of a batch's matrices: one after the other, interleaved by rows, or one for all. */
const batchLayouts = ["separate", "interleaved", "shared"] as const;
type BatchLayout = (typeof batchLayouts)[number];

export interface RandomMatrix {
  readonly isTransposed: boolean;
  readonly batchLayout: BatchLayout;
  /** Elements between the rows, and before the first. */
  readonly gap: number;
  readonly offset: number;
}

export interface RandomGemm {
  readonly dtype: FloatName;
  readonly resultDtype: FloatName;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  readonly a: RandomMatrix;
  readonly b: RandomMatrix;
  readonly c: RandomMatrix;
  readonly alpha: number;
  readonly beta: number;
  readonly bias: "none" | "one" | "batched";
  readonly activation: "none" | "relu" | "gelu";
}

const matrix = (layouts: readonly BatchLayout[], mayTranspose: boolean): fc.Arbitrary<RandomMatrix> =>
  fc.record({
    isTransposed: mayTranspose ? fc.boolean() : fc.constant(false),
    batchLayout: fc.constantFrom(...layouts),
    gap: fc.nat(3),
    offset: fc.nat(5),
  });

export function randomGemms(dtypes: readonly FloatName[]): fc.Arbitrary<RandomGemm> {
  const size = fc.oneof(fc.integer({ min: 1, max: 5 }), fc.constantFrom(8, 9));
  const types = fc.constantFrom(...dtypes).chain((dtype) =>
    fc.record({
      dtype: fc.constant(dtype),
      resultDtype: fc.constantFrom<FloatName>(dtype, dtype === "f64" ? "f64" : "f32"),
    }),
  );
  const rest = fc.record({
    ...{ m: size, n: size, k: size, batch: fc.constantFrom(1, 1, 2, 3) },
    ...{
      a: matrix(batchLayouts, true),
      b: matrix(batchLayouts, true),
      c: matrix(["separate", "interleaved"], false),
    },
    ...{ alpha: fc.constantFrom(1, -0.5, 2), beta: fc.constantFrom(0, 1, -2) },
    bias: fc.constantFrom("none", "one", "batched"),
    activation: fc.constantFrom("none", "relu", "gelu"),
  });
  return fc.tuple(types, rest).map(([typed, other]) => ({ ...typed, ...other }) as RandomGemm);
}

export interface LaidOut {
  readonly rowStride: number;
  readonly batchStride: number;
  readonly offset: number;
  /** Elements from the first of the first matrix to the end of the last one. */
  readonly extent: number;
  /** Elements of its memory, with some before and after it. */
  readonly length: number;
  at(item: number, row: number, column: number): number;
}

/** The index of the elements of a matrix that is stored as rows × columns. */
export function layoutOf(
  { batchLayout, gap, offset }: RandomMatrix,
  batch: number,
  rows: number,
  columns: number,
): LaidOut {
  const width = columns + gap;
  const rowStride = batchLayout === "interleaved" ? batch * width : width;
  const batchStride =
    batch === 1 || batchLayout === "shared" ? 0 : batchLayout === "interleaved" ? width : rows * width;
  const extent = (batch - 1) * batchStride + (rows - 1) * rowStride + columns;
  const at = (item: number, row: number, column: number): number =>
    offset + item * batchStride + row * rowStride + column;
  return { rowStride, batchStride, offset, extent, length: offset + extent + 3, at };
}

export function layOutGemm({ m, n, k, batch, a, b, c }: RandomGemm) {
  return {
    a: a.isTransposed ? layoutOf(a, batch, k, m) : layoutOf(a, batch, m, k),
    b: b.isTransposed ? layoutOf(b, batch, n, k) : layoutOf(b, batch, k, n),
    c: layoutOf(c, batch, m, n),
  };
}

/** Integers from -2 to 2, the same for the same seed. */
export function smallValues(length: number, seed: number): Float64Array {
  let state = seed;
  // Not from(): it takes a result object for each element.
  return new Float64Array(length).map(() => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    return ((state >>> 16) % 5) - 2;
  });
}

export interface GemmValues {
  readonly a: Float64Array;
  readonly b: Float64Array;
  readonly c: Float64Array;
  /** [n] for each GEMM of the batch at `biasStep`, or one for all. */
  readonly bias: Float64Array;
}

/** From the bias of one GEMM to the next one's: libraries require an alignment of 16 bytes. */
export function biasStepOf({ n, batch, bias, resultDtype }: RandomGemm): number {
  const step = 16 / floatBytes[resultDtype];
  return bias === "batched" && batch > 1 ? Math.ceil(n / step) * step : 0;
}

export function valuesFor(gemm: RandomGemm): GemmValues {
  const { a, b, c } = layOutGemm(gemm);
  const values = {
    a: smallValues(a.length, 1),
    b: smallValues(b.length, 2),
    c: smallValues(c.length, 3),
    bias: smallValues(gemm.n + (gemm.batch - 1) * biasStepOf(gemm), 4),
  };
  // If beta is 0, the contents of C must not matter.
  if (gemm.beta === 0) values.c.fill(Number.NaN);
  return values;
}

/** The memory of C afterwards: the result in its elements, and everything else unchanged. */
export function expectedOf(gemm: RandomGemm, { a, b, c, bias }: GemmValues): Float64Array {
  const { m, n, k, batch, alpha, beta, activation } = gemm;
  const layouts = layOutGemm(gemm);
  // Steps in memory from one row of A to the next, from one column of B to the next, and along K.
  const [aRow, aStep] = gemm.a.isTransposed ? [1, layouts.a.rowStride] : [layouts.a.rowStride, 1];
  const [bColumn, bStep] = gemm.b.isTransposed ? [layouts.b.rowStride, 1] : [1, layouts.b.rowStride];
  const expected = Float64Array.from(c);
  for (let item = 0; item < batch; item++) {
    for (let row = 0; row < m; row++) {
      for (let column = 0; column < n; column++) {
        let sum = 0;
        let left = layouts.a.at(item, 0, 0) + row * aRow;
        let right = layouts.b.at(item, 0, 0) + column * bColumn;
        for (let index = 0; index < k; index++) {
          sum += a[left]! * b[right]!;
          left += aStep;
          right += bStep;
        }
        const at = layouts.c.at(item, row, column);
        const before = beta === 0 ? 0 : beta * c[at]!;
        const shift = gemm.bias === "none" ? 0 : bias[item * biasStepOf(gemm) + column]!;
        expected[at] = activate(alpha * sum + before + shift, activation);
      }
    }
  }
  return expected;
}

function activate(x: number, activation: RandomGemm["activation"]): number {
  if (activation === "relu") return Math.max(x, 0);
  if (activation === "none") return x;
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

/** The error of a gelu, once for each rounding of its result; everything else is exact. */
const geluError: Readonly<Record<FloatName, number>> = {
  f64: 1e-14,
  f32: 1e-6,
  f16: 2 ** -10,
  bf16: 2 ** -7,
};

/** A library's gelu after a GEMM of half floats, whose result may still be f32. */
const libraryGeluError = 1e-4;

/** Fails with the first wrong element. */
export function checkValues(gemm: RandomGemm, actual: Float64Array, expected: Float64Array): void {
  const { dtype, resultDtype, activation } = gemm;
  const isByLibrary = dtype === "f16" || dtype === "bf16";
  const gelu = Math.max(geluError[resultDtype], isByLibrary ? libraryGeluError : 0);
  const allowed = activation === "gelu" ? gelu : 0;
  for (const [at, value] of expected.entries()) {
    const isRight =
      Object.is(actual[at], value) || Math.abs(actual[at]! - value) <= allowed * (1 + Math.abs(value));
    if (!isRight) throw new Error(`element ${at} of C's memory is ${actual[at]} and should be ${value}`);
  }
}
