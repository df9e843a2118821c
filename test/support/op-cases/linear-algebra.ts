/** Cases of decompositions and solvers: batches of small matrices that are far from singular, with distinct spectra. */

import fc from "fast-check";
import { type KernelOp, linearAlgebra as ops, type Shape } from "../../../src/ops/index.js";
import { anyShape, anySize, between, call, type OperandOptions, operand, whole } from "./arbitraries.js";
import type { TensorOperand } from "./op-case.js";
import { type OpCase, opCase } from "./op-case.js";

const layouts = ["contiguous", "transposed", "offset", "stepped"] as const;

/** A batch of matrices, and the batch's shape. */
interface Matrices {
  readonly leading: Shape;
  readonly m: number;
  readonly n: number;
}

function anyMatrices(elements: number, which: "square" | "tall" | "any"): fc.Arbitrary<Matrices> {
  const max = Math.max(2, Math.min(4, Math.floor(Math.sqrt(elements / 2))));
  const leading = anyShape({
    axes: [0, 2],
    elements: Math.max(1, Math.floor(elements / max ** 2)),
    canBeEmpty: false,
  });
  return fc.record({ leading, m: anySize(max), n: anySize(max) }).map(({ leading: batch, m, n }) => {
    if (which === "square") return { leading: batch, m, n: m };
    return which === "tall"
      ? { leading: batch, m: Math.max(m, n), n: Math.min(m, n) }
      : { leading: batch, m, n };
  });
}

/** Small values, and larger ones on the diagonal that grow from row to row. Symmetric matrices keep their upper triangles. */
function regular(
  { leading, m, n }: Matrices,
  { isSymmetric = false }: { readonly isSymmetric?: boolean } = {},
): fc.Arbitrary<TensorOperand> {
  return operand([...leading, m, n], { values: between(-0.4, 0.4), layouts }).map((drawn) => {
    const values = drawn.values.map((value, index) => {
      const [row, column] = [Math.floor(index / n) % m, index % n];
      if (row === column) return Math.fround(value + 2 + row);
      const mirrored = index + (column - row) * n - (column - row);
      return isSymmetric && row > column ? (drawn.values[mirrored] ?? 0) : value;
    });
    return { ...drawn, values };
  });
}

const plain = (shape: Shape, options: OperandOptions = {}): fc.Arbitrary<TensorOperand> =>
  operand(shape, { layouts, ...options });

/** Cases of one square operand. */
const ofSquares = [ops.inverse, ops.determinant, ops.logAbsDeterminant, ops.cofactor, ops.matrixExponential]
  .map((op): readonly [KernelOp, boolean] => [op, false])
  .concat([ops.choleskyFactor, ops.eighFactor, ops.eighValues].map((op) => [op, true]))
  .map(([op, isSymmetric]) =>
    opCase({
      op,
      gradients: [0],
      draw: (elements) =>
        anyMatrices(elements, "square").chain((matrices) => call([regular(matrices, { isSymmetric })])),
    }),
  );

const ofMatrices = [ops.svdFactor, ops.svdValues].map((op) =>
  opCase({
    op,
    gradients: [0],
    draw: (elements) => anyMatrices(elements, "any").chain((matrices) => call([regular(matrices)])),
  }),
);

export const linearAlgebraCases: readonly OpCase[] = [
  ...ofSquares,
  ...ofMatrices,
  opCase({
    op: ops.pseudoInverse,
    gradients: [0],
    draw: (elements) =>
      anyMatrices(elements, "any").chain((matrices) =>
        call([regular(matrices)], fc.constant({ relative: 1e-6, absolute: 0 })),
      ),
  }),
  opCase({
    op: ops.qrFactor,
    gradients: [0],
    draw: (elements) => anyMatrices(elements, "tall").chain((matrices) => call([regular(matrices)])),
  }),
  opCase({
    op: ops.luFactor,
    gradients: [0],
    draw: (elements) => anyMatrices(elements, "square").chain((matrices) => call([regular(matrices)])),
  }),
  opCase({
    op: ops.solve,
    gradients: [0, 1],
    draw: (elements) =>
      fc.tuple(anyMatrices(elements, "square"), anySize(3)).chain(([matrices, columns]) => {
        const right = plain([...matrices.leading, matrices.n, columns]);
        return call([regular(matrices), right]);
      }),
  }),
  opCase({
    op: ops.triangularSolve,
    gradients: [0, 1],
    draw: (elements) =>
      fc
        .tuple(anyMatrices(elements, "square"), anySize(3))
        .chain(([matrices, columns]) =>
          call(
            [regular(matrices), plain([...matrices.leading, matrices.n, columns])],
            fc.record({ isUpper: fc.boolean(), isTransposed: fc.boolean(), isUnit: fc.boolean() }),
          ),
        ),
  }),
  opCase({
    op: ops.triangularPart,
    gradients: [0],
    draw: (elements) =>
      anyMatrices(elements, "any").chain(({ leading, m, n }) =>
        call(
          [plain([...leading, m, n])],
          fc.record({
            isUpper: fc.boolean(),
            offset: fc.integer({ min: -2, max: 2 }),
            diagonalFactor: fc.constantFrom(1, 0.5),
          }),
        ),
      ),
  }),
  opCase({
    op: ops.gapQuotient,
    gradients: [0, 1],
    draw: (elements) =>
      anyMatrices(elements, "square").chain(({ leading, n }) =>
        call([plain([...leading, n, n]), operand([...leading, n], { isDistinct: true })]),
      ),
  }),
  opCase({
    op: ops.luPermutation,
    gradients: "none",
    draw: (elements) =>
      anyMatrices(elements, "square").chain(({ leading, n }) =>
        call(
          [plain([...leading, n], { dtype: "i32", values: whole(1, n) })],
          fc.constant({ rows: n, dtype: "f32" as const }),
        ),
      ),
  }),
  opCase({
    op: ops.orthonormalComplement,
    gradients: "none",
    draw: (elements) => anyMatrices(elements, "tall").chain((matrices) => call([regular(matrices)])),
  }),
];
