/** GEMMs for tests: random cases over shapes and layouts, their memory, and the comparison with float64. */

import assert from "node:assert/strict";
import fc from "fast-check";
import type { Runtime } from "holdfast/internals";
import {
  type GemmDtype,
  type GemmProblem,
  type GemmShape,
  gemmCalls,
  gemmScratchBytes,
  submit,
} from "../../src/kernels/index.js";
import { sameBytes } from "./same-bytes.js";

/** A GEMM: its operands, and their layouts. */
export interface GemmCase {
  readonly dtype: GemmDtype;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  readonly isATransposed: boolean;
  readonly isBTransposed: boolean;
  readonly isBShared: boolean;
  /** Padding of a row of A, B and C, in elements. */
  readonly padding: readonly [number, number, number];
  /** Elements before the first one of A, B and C. */
  readonly offset: readonly [number, number, number];
  readonly alpha: number;
  readonly beta: number;
}

export const plainCase: GemmCase = {
  dtype: "f32",
  m: 1,
  n: 1,
  k: 1,
  batch: 1,
  isATransposed: false,
  isBTransposed: false,
  isBShared: false,
  padding: [0, 0, 0],
  offset: [0, 0, 0],
  alpha: 1,
  beta: 0,
};

const three = (max: number) => fc.tuple(fc.nat(max), fc.nat(max), fc.nat(max));

/** Small and large ones, with sizes on both sides of a tile, of a strip and of a slice of k. */
export function gemmCases(
  dtype: GemmDtype,
  strip: { rows: number; columns: number; depth: number },
): fc.Arbitrary<GemmCase> {
  const small = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(12, 13, 31, 47, 64, 67));
  const sizes = fc.oneof(
    fc.record({ m: small, n: small, k: small }),
    fc.record({
      m: fc.constantFrom(47, 64, 67, 97, strip.rows + 1),
      n: fc.constantFrom(31, 64, 67, 97, strip.columns + 3),
      k: fc.constantFrom(97, 131, strip.depth, 2 * strip.depth + 5),
    }),
  );
  const rest = fc.record({
    dtype: fc.constant(dtype),
    batch: fc.oneof({ arbitrary: fc.constant(1), weight: 3 }, { arbitrary: fc.constant(3), weight: 1 }),
    isATransposed: fc.boolean(),
    isBTransposed: fc.boolean(),
    isBShared: fc.boolean(),
    padding: three(5),
    offset: three(5),
    alpha: fc.constantFrom(1, -0.5, 3),
    beta: fc.constantFrom(0, 1, -2),
  });
  return fc.tuple(sizes, rest).map(([shape, other]) => ({ ...shape, ...other }));
}

export const arrayOf = { f32: Float32Array, f64: Float64Array } as const;
export type Values = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

export function randomValues(dtype: GemmDtype, count: number, seed: number): Values {
  let state = seed;
  const values = new arrayOf[dtype](count);
  for (let index = 0; index < count; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    values[index] = state / 2 ** 31;
  }
  return values;
}

/** A matrix in its own buffer: `offset` elements, the matrices of the batch, a few elements more. */
function layoutOf(rows: number, columns: number, padding: number, offset: number, batch: number) {
  const rowStride = columns + padding;
  const batchStride = rows * rowStride;
  const extent = (batch - 1) * batchStride + (rows - 1) * rowStride + columns;
  const at = (item: number, row: number, column: number) =>
    offset + item * batchStride + row * rowStride + column;
  return {
    rowStride,
    batchStride: batch > 1 ? batchStride : 0,
    offset,
    extent,
    size: offset + extent + 7,
    at,
  };
}

export function layOutAll({
  m,
  n,
  k,
  batch,
  isATransposed,
  isBTransposed,
  isBShared,
  padding,
  offset,
}: GemmCase) {
  const [aRows, aColumns] = isATransposed ? [k, m] : [m, k];
  const [bRows, bColumns] = isBTransposed ? [n, k] : [k, n];
  return {
    a: layoutOf(aRows, aColumns, padding[0], offset[0], batch),
    b: layoutOf(bRows, bColumns, padding[1], offset[1], isBShared ? 1 : batch),
    c: layoutOf(m, n, padding[2], offset[2], batch),
  };
}

function submitGemm(runtime: Runtime, problem: GemmProblem): void {
  const scratchBytes = gemmScratchBytes(runtime, problem);
  const scratch = scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "scratch") };
  submit(runtime, gemmCalls({ ...problem, ...scratch }));
}

/** Runs a GEMM on the runtime and returns the whole buffer of C, before and after. */
export function runGemm(runtime: Runtime, gemmCase: GemmCase, multiply = submitGemm) {
  const { dtype, m, n, k, batch, isATransposed, isBTransposed, alpha, beta } = gemmCase;
  const bytes = arrayOf[dtype].BYTES_PER_ELEMENT;
  const layouts = layOutAll(gemmCase);
  const values = {
    a: randomValues(dtype, layouts.a.size, 1),
    b: randomValues(dtype, layouts.b.size, 2),
    c: randomValues(dtype, layouts.c.size, 3),
  };
  // The old contents of C must not matter then; NaN is the poison of dead memory.
  if (beta === 0) values.c.fill(Number.NaN);
  return runtime.step(() => {
    const upload = (name: "a" | "b" | "c") => {
      const { size, offset, extent, rowStride, batchStride } = layouts[name];
      const buffer = runtime.arena.allocate(size * bytes, name);
      runtime.upload([{ source: values[name], target: buffer }]);
      const storage = runtime.view(buffer, offset * bytes, extent * bytes);
      return { buffer, operand: { storage, rowStride, batchStride } };
    };
    const [a, b, c] = [upload("a"), upload("b"), upload("c")];
    const problem: GemmProblem = {
      dtype,
      m,
      n,
      k,
      batch,
      a: { ...a.operand, isTransposed: isATransposed },
      b: { ...b.operand, isTransposed: isBTransposed },
      c: c.operand,
      alpha,
      beta,
    };
    multiply(runtime, problem);
    const after = new arrayOf[dtype](runtime.read(c.buffer).buffer);
    return { values, layouts, after };
  });
}

/**
 * Fails unless every element is within the error bound of a sum of k products, and the elements around C are
 * unchanged.
 */
export function checkGemm(runtime: Runtime, gemmCase: GemmCase): void {
  const { dtype, m, n, k, batch, isATransposed, isBTransposed, isBShared, alpha, beta } = gemmCase;
  const { values, layouts, after } = runGemm(runtime, gemmCase);
  const epsilon = dtype === "f32" ? 2 ** -24 : 2 ** -53;
  const untouched = values.c.slice();
  // From one factor of a sum to the next.
  const aStep = isATransposed ? layouts.a.rowStride : 1;
  const bStep = isBTransposed ? 1 : layouts.b.rowStride;
  for (let item = 0; item < batch; item++) {
    const bItem = isBShared ? 0 : item;
    for (let row = 0; row < m; row++) {
      const aFirst = isATransposed ? layouts.a.at(item, 0, row) : layouts.a.at(item, row, 0);
      for (let column = 0; column < n; column++) {
        const bFirst = isBTransposed ? layouts.b.at(bItem, column, 0) : layouts.b.at(bItem, 0, column);
        let sum = 0;
        let size = 0;
        for (let step = 0; step < k; step++) {
          const term = values.a[aFirst + step * aStep]! * values.b[bFirst + step * bStep]!;
          sum += term;
          size += Math.abs(term);
        }
        const index = layouts.c.at(item, row, column);
        const before = beta === 0 ? 0 : beta * values.c[index]!;
        const error = Math.abs(after[index]! - (alpha * sum + before));
        const bound = 2 * (k + 3) * epsilon * (Math.abs(alpha) * size + Math.abs(before));
        // Written so that NaN fails.
        if (!(error <= bound))
          assert.fail(`C[${item}, ${row}, ${column}] is off by ${error}, and ${bound} is allowed`);
        untouched[index] = after[index]!;
      }
    }
  }
  sameBytes(after, untouched, "the elements around C");
}

export function shapeOf(gemmCase: GemmCase): GemmShape {
  const { dtype, m, n, k, batch, isATransposed, isBTransposed } = gemmCase;
  const { a, b } = layOutAll(gemmCase);
  return {
    dtype,
    m,
    n,
    k,
    batch,
    a: { ...a, isTransposed: isATransposed },
    b: { ...b, isTransposed: isBTransposed },
  };
}
