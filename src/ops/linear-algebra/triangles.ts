/** Triangles of matrices: the part on one side of a diagonal, and systems of equations with a triangle. */

import { denseKernels } from "../../kernels/index.js";
import { mul } from "../elementwise/arithmetic.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { badShape, formatShape, isSameShape } from "../shape.js";
import { promotedDtype } from "./dtype.js";
import { lowerDense } from "./lower-dense.js";
import { matricesAt, matrixAlgebra, splitMatrices, squareAt } from "./matrices.js";

/** `offset`: of the diagonal, to the right. `diagonalFactor`: of its elements; default: 1. */
export type TriangularPartAttributes = {
  readonly isUpper: boolean;
  readonly offset?: number;
  readonly diagonalFactor?: number;
};

/** The elements on one side of a diagonal, and zeros elsewhere. */
export const triangularPart: KernelOp<TriangularPartAttributes> = {
  kind: "kernel",
  name: "triangularPart",
  infer(operands) {
    matricesAt("triangularPart", operands, 0);
    return [typeAt("triangularPart", operands, 0)].map(({ shape, dtype }) => ({ shape, dtype }));
  },
  gradient: (rule) => [rule.apply(triangularPart, [rule.upstream], rule.attributes)],
  lower(lowering, operands, outputs, { isUpper, offset = 0, diagonalFactor = 1 }) {
    const input = arrayAt(operands, 0);
    const { rows, columns, batch } = splitMatrices(input);
    const numbers = [rows, columns, isUpper ? 1 : 0, offset, diagonalFactor];
    lowerDense(lowering, { kernel: denseKernels.triangularPart, inputs: [input], outputs, batch, numbers });
  },
};

/** `isTransposed`: solve with the transpose. `isUnit`: the diagonal counts as ones. Default: false. */
export type TriangularSolveAttributes = {
  readonly isUpper: boolean;
  readonly isTransposed?: boolean;
  readonly isUnit?: boolean;
};

/** Solves T · X = B. Only the triangle of T is read. A zero on the diagonal gives infinities and NaN. */
export const triangularSolve: KernelOp<TriangularSolveAttributes> = {
  kind: "kernel",
  name: "triangularSolve",
  infer(operands) {
    const [t, b] = [squareAt("triangularSolve", operands, 0), matricesAt("triangularSolve", operands, 1)];
    const { shape } = typeAt("triangularSolve", operands, 1);
    if (t.rows !== b.rows || !isSameShape(t.leading, b.leading)) {
      const given = `${formatShape(typeAt("triangularSolve", operands, 0).shape)} and ${formatShape(shape)}`;
      throw badShape(
        "triangularSolve",
        `${given}: the matrices must have as many rows and the same leading axes.`,
      );
    }
    return [{ shape, dtype: promotedDtype(operands) }];
  },
  saves: ([t]) => ({ operands: [0], outputs: t ? [0] : [] }),
  gradient(rule) {
    const { isTransposed = false, isUnit = false, isUpper } = rule.attributes;
    const { t, product } = matrixAlgebra(rule);
    const solved = rule.apply(triangularSolve, [rule.operand(0), rule.upstream], {
      ...rule.attributes,
      isTransposed: !isTransposed,
    });
    return [rule.needs(0) ? ofTriangle() : undefined, fitToOperand(rule, solved, 1)];

    function ofTriangle() {
      const x = rule.output(0);
      const outer = isTransposed ? product(x, t(solved)) : product(solved, t(x));
      const offset = isUnit ? (isUpper ? 1 : -1) : 0;
      const part = rule.apply(triangularPart, [outer], { isUpper, offset });
      return fitToOperand(rule, rule.apply(mul, [part, -1]), 0);
    }
  },
  lower(lowering, operands, outputs, { isUpper, isTransposed = false, isUnit = false }) {
    const inputs = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const { rows, columns, batch } = splitMatrices(arrayAt(operands, 1));
    const numbers = [rows, columns, ...[isUpper, isTransposed, isUnit].map(Number)];
    lowerDense(lowering, { kernel: denseKernels.triangularSolve, inputs, outputs, batch, numbers });
  },
};
