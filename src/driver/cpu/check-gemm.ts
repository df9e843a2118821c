/** Checks the GEMM functions of a BLAS library with small products whose exact results are known. */

import { loadKoffi } from "../foreign-functions.js";
import { type BlasGemm, blasNoTranspose, blasRowMajor, blasTransposed } from "./blas-gemm.js";

/** Large enough for the library's tiles and threads; no multiple of a tile's sides. */
const [m, n, k] = [70, 61, 67];
/** Elements after each row. The library must neither read nor write them. */
const padding = 3;
const [alpha, beta] = [2, -3];

/** Describes the first wrong product; undefined if all are right. */
export function findWrongProduct(gemms: Readonly<Record<"f32" | "f64", BlasGemm>>): string | undefined {
  const transposes = [false, true].flatMap((a) => [false, true].map((b) => [a, b] as const));
  for (const dtype of ["f32", "f64"] as const) {
    for (const [transposesA, transposesB] of transposes) {
      if (isRight(gemms[dtype], dtype, transposesA, transposesB)) continue;
      const operand = (name: string, isTransposed: boolean) => `${isTransposed ? "transposed " : ""}${name}`;
      return `the ${dtype} product of ${operand("A", transposesA)} [${m}, ${k}] and ${operand("B", transposesB)} [${k}, ${n}]`;
    }
  }
  return undefined;
}

/**
 * A is `x[i] + y[p]` and B is `z[p] · w[j]` with small whole numbers. So every sum is exact in any order, and the result has a closed
 * form: `w[j] · (x[i] · Σz + Σ(y · z))`.
 */
function isRight(gemm: BlasGemm, dtype: "f32" | "f64", transposesA: boolean, transposesB: boolean): boolean {
  const x = (row: number): number => (row % 7) - 3;
  const y = (p: number): number => (p % 5) - 1;
  const z = (p: number): number => (p % 3) - 1;
  const w = (column: number): number => (column % 4) - 1;
  const before = (row: number, column: number): number => ((row + column) % 6) - 2;
  const matrix = (rows: number, columns: number, element: (row: number, column: number) => number) => {
    const rowStride = columns + padding;
    const elements = new (dtype === "f32" ? Float32Array : Float64Array)(rows * rowStride).fill(Number.NaN);
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        elements[row * rowStride + column] = element(row, column);
    return { elements, rowStride, address: Number(loadKoffi().address(elements)) };
  };
  const a = transposesA ? matrix(k, m, (p, row) => x(row) + y(p)) : matrix(m, k, (row, p) => x(row) + y(p));
  const b = transposesB
    ? matrix(n, k, (column, p) => z(p) * w(column))
    : matrix(k, n, (p, column) => z(p) * w(column));
  const c = matrix(m, n, before);
  const transpose = (isTransposed: boolean): number => (isTransposed ? blasTransposed : blasNoTranspose);
  gemm(
    ...([blasRowMajor, transpose(transposesA), transpose(transposesB), m, n, k, alpha] as const),
    ...([a.address, a.rowStride, b.address, b.rowStride, beta, c.address, c.rowStride] as const),
  );
  let [sumZ, sumYZ] = [0, 0];
  for (let p = 0; p < k; p++) {
    sumZ += z(p);
    sumYZ += y(p) * z(p);
  }
  const expected = matrix(
    m,
    n,
    (row, column) => alpha * w(column) * (x(row) * sumZ + sumYZ) + beta * before(row, column),
  );
  return c.elements.every((value, index) => {
    const wanted = expected.elements[index];
    return value === wanted || (Number.isNaN(value) && Number.isNaN(wanted));
  });
}
