/** The routines of dense linear algebra as kernels: their inputs, outputs and numbers. Matrices are row-major. */

import { factorCholesky } from "./cholesky.js";
import { type DenseRoutine, denseKernel } from "./dense-kernel.js";
import { factorSymmetric } from "./eigh.js";
import {
  determinant,
  factorLu,
  invert,
  logDeterminant,
  permutationMatrix,
  solveLu,
  solveTriangle,
} from "./lu.js";
import { at, type Matrix, transpose } from "./matrix.js";
import { exponential } from "./matrix-exp.js";
import { factorQr } from "./qr.js";
import { cofactors, factorSvd, pseudoInverse } from "./svd.js";

const none = new Float64Array(0);

/** An array that the signature of the routine has. */
function arrayAt(arrays: readonly Matrix[], index: number): Matrix {
  return arrays[index] ?? none;
}

function routine(
  name: string,
  signature: Omit<DenseRoutine, "name" | "run">,
  run: DenseRoutine["run"],
): ReturnType<typeof denseKernel> {
  return denseKernel({ name, ...signature, run });
}

/** The kernels of linear algebra, by the names of their ops. `info` is 0, or says where the matrix has no such decomposition. */
export const denseKernels = {
  /** A [n, n] → L [n, n], info. Numbers: n. */
  choleskyFactor: routine(
    "choleskyFactor",
    { inputs: ["float"], outputs: ["float", "i32"], numbers: 1 },
    ([a = none], [factor = none, code = none], [n = 0], fail) => {
      const { factor: result, info } = factorCholesky(a, n);
      if (info > 0) fail();
      else factor.set(result);
      code[0] = info;
    },
  ),
  /** T [n, n], B [n, k] → X [n, k]. Numbers: n, k, isUpper, isTransposed, isUnit. */
  triangularSolve: routine(
    "triangularSolve",
    { inputs: ["float", "float"], outputs: ["float"], numbers: 5 },
    ([t = none, b = none], [x = none], [n = 0, k = 0, isUpper, isTransposed, isUnit]) => {
      x.set(b);
      solveTriangle(t, x, n, k, {
        isUpper: isUpper === 1,
        isTransposed: isTransposed === 1,
        isUnit: isUnit === 1,
      });
    },
  ),
  /** A [m, n] → L and U in one matrix [m, n], pivots [min(m, n)] counted from 1, as in LAPACK, info. Numbers: m, n. */
  luFactor: routine(
    "luFactor",
    { inputs: ["float"], outputs: ["float", "i32", "i32"], numbers: 2 },
    ([a = none], [lu = none, pivots = none, code = none], [m = 0, n = 0]) => {
      const result = factorLu(a, m, n);
      lu.set(result.lu);
      pivots.set(result.pivots.map((pivot) => pivot + 1));
      code[0] = result.info;
    },
  ),
  /** Pivots [k] → P [m, m]. Numbers: m. */
  luPermutation: routine(
    "luPermutation",
    { inputs: ["i32"], outputs: ["float"], numbers: 1 },
    ([pivots = none], [p = none], [m = 0]) =>
      p.set(
        permutationMatrix(
          pivots.map((pivot) => pivot - 1),
          m,
        ),
      ),
  ),
  /** A [n, n], B [n, k] → X [n, k], info. Numbers: n, k. */
  solve: routine(
    "solve",
    { inputs: ["float", "float"], outputs: ["float", "i32"], numbers: 2 },
    ([a = none, b = none], [x = none, code = none], [n = 0, k = 0], fail) => {
      const lu = factorLu(a, n, n);
      x.set(b);
      if (lu.info > 0) fail();
      else solveLu(lu, x, n, k);
      code[0] = lu.info;
    },
  ),
  /** A [n, n] → its inverse [n, n], info. Numbers: n. */
  inverse: routine(
    "inverse",
    { inputs: ["float"], outputs: ["float", "i32"], numbers: 1 },
    ([a = none], [x = none, code = none], [n = 0], fail) => {
      const { inverse, info } = invert(a, n);
      if (info > 0) fail();
      else x.set(inverse);
      code[0] = info;
    },
  ),
  /** A [n, n] → its determinant. Numbers: n. */
  determinant: routine(
    "determinant",
    { inputs: ["float"], outputs: ["float"], numbers: 1 },
    ([a = none], [result = none], [n = 0]) => {
      result[0] = determinant(a, n);
    },
  ),
  /** A [n, n] → its cofactors [n, n]. Numbers: n. */
  cofactor: routine(
    "cofactor",
    { inputs: ["float"], outputs: ["float"], numbers: 1 },
    ([a = none], [result = none], [n = 0]) =>
      result.set(cofactors(a, n, (matrix) => Math.sign(determinant(matrix, n)))),
  ),
  /** A [n, n] → log |det A|, the determinant's sign. Numbers: n. */
  logAbsDeterminant: routine(
    "logAbsDeterminant",
    { inputs: ["float"], outputs: ["float", "float"], numbers: 1 },
    ([a = none], [logarithm = none, sign = none], [n = 0]) => {
      const result = logDeterminant(a, n);
      logarithm[0] = result.logarithm;
      sign[0] = result.sign;
    },
  ),
  /** A [m, n] with m ≥ n → a row [Qᵀ | R] for each column: [n, m + n]. Numbers: m, n. */
  qrFactor: routine(
    "qrFactor",
    { inputs: ["float"], outputs: ["float"], numbers: 2 },
    ([a = none], [packed = none], [m = 0, n = 0]) => {
      const { q, r } = factorQr(a, m, n);
      for (let row = 0; row < n; row++) {
        for (let i = 0; i < m; i++) packed[row * (m + n) + i] = at(q, i * n + row);
        packed.set(r.subarray(row * n, (row + 1) * n), row * (m + n) + m);
      }
    },
  ),
  /** Orthonormal columns Q [m, k] → m − k further ones [m, m − k]. Numbers: m, k. */
  orthonormalComplement: routine(
    "orthonormalComplement",
    { inputs: ["float"], outputs: ["float"], numbers: 2 },
    ([a = none], [result = none], [m = 0, k = 0]) => {
      const { q } = factorQr(a, m, k, m);
      for (let i = 0; i < m; i++) result.set(q.subarray(i * m + k, (i + 1) * m), i * (m - k));
    },
  ),
  /** A symmetric A [n, n] → the eigenvalues in the first row, then a column for each vector: [n + 1, n]. Numbers: n. */
  eighFactor: routine(
    "eighFactor",
    { inputs: ["float"], outputs: ["float"], numbers: 1 },
    ([a = none], [packed = none], [n = 0]) => {
      const { values, vectors } = factorSymmetric(a, n);
      packed.set(values);
      packed.set(transpose(vectors, n, n), n);
    },
  ),
  /** The same as the values [n] and the vectors, in columns [n, n]. Numbers: n. */
  eighValues: routine(
    "eighValues",
    { inputs: ["float"], outputs: ["float", "float"], numbers: 1 },
    ([a = none], [values = none, columns = none], [n = 0]) => {
      const result = factorSymmetric(a, n);
      values.set(result.values);
      columns.set(transpose(result.vectors, n, n));
    },
  ),
  /** A [m, n] → a column [U; S; V] for each of the k singular values: [m + 1 + n, k]. Numbers: m, n. */
  svdFactor: routine(
    "svdFactor",
    { inputs: ["float"], outputs: ["float"], numbers: 2 },
    ([a = none], [packed = none], [m = 0, n = 0]) => packSvd(a, packed, m, n),
  ),
  /** The same, after the singular values [k] alone. Numbers: m, n. */
  svdValues: routine(
    "svdValues",
    { inputs: ["float"], outputs: ["float", "float"], numbers: 2 },
    ([a = none], [values = none, packed = none], [m = 0, n = 0]) => {
      packSvd(a, packed, m, n);
      values.set(packed.subarray(m * values.length, (m + 1) * values.length));
    },
  ),
  /** A [m, n] → its pseudo-inverse [n, m]. Numbers: m, n, the relative and the absolute cutoff of singular values. */
  pseudoInverse: routine(
    "pseudoInverse",
    { inputs: ["float"], outputs: ["float"], numbers: 4 },
    ([a = none], [result = none], [m = 0, n = 0, relative = 0, absolute = 0]) =>
      result.set(pseudoInverse(a, m, n, relative, absolute)),
  ),
  /** A [n, n] → its exponential [n, n]. Numbers: n. */
  matrixExponential: routine(
    "matrixExponential",
    { inputs: ["float"], outputs: ["float"], numbers: 1 },
    ([a = none], [result = none], [n = 0]) => result.set(exponential(a, n)),
  ),
  /** X [n, n], w [n] → X[i, j] / (w[j] − w[i]), and 0 where X is 0 or i = j. Numbers: n. */
  gapQuotient: routine(
    "gapQuotient",
    { inputs: ["float", "float"], outputs: ["float"], numbers: 1 },
    (inputs, [result = none], [n = 0]) => {
      const [x, w] = [arrayAt(inputs, 0), arrayAt(inputs, 1)];
      for (let i = 0; i < n; i++) {
        for (let j = 0; j < n; j++) {
          const value = at(x, i * n + j);
          result[i * n + j] = i === j || value === 0 ? 0 : value / (at(w, j) - at(w, i));
        }
      }
    },
  ),
  /**
   * A [m, n] → its elements on one side of a diagonal, and zeros elsewhere. Numbers: m, n, isUpper, the diagonal's offset to the right, and
   * the factor of the elements on the diagonal.
   */
  triangularPart: routine(
    "triangularPart",
    { inputs: ["float"], outputs: ["float"], numbers: 5 },
    ([a = none], [result = none], [m = 0, n = 0, isUpper, offset = 0, factor = 1]) => {
      for (let i = 0; i < m; i++) {
        for (let j = 0; j < n; j++) {
          const side = j - i - offset;
          if (side === 0) result[i * n + j] = factor * at(a, i * n + j);
          else if (side > 0 === (isUpper === 1)) result[i * n + j] = at(a, i * n + j);
        }
      }
    },
  ),
} as const;

function packSvd(a: Matrix, packed: Matrix, m: number, n: number): void {
  const { values, left, right } = factorSvd(a, m, n);
  const k = values.length;
  packed.set(transpose(left, k, m));
  packed.set(values, m * k);
  packed.set(transpose(right, k, n), (m + 1) * k);
}
