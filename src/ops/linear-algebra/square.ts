/** Ops of square matrices: systems of equations, inverses, determinants and exponentials. */

import { denseKernels } from "../../kernels/index.js";
import { sum } from "../broadcast.js";
import { mul, sub } from "../elementwise/arithmetic.js";
import { fitToOperand } from "../gradients.js";
import { cat } from "../movement/cat.js";
import { reshape } from "../movement/reshape.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt, type ValueType } from "../op.js";
import { badShape, formatShape, isSameShape } from "../shape.js";
import { promotedDtype } from "./dtype.js";
import { lowerDense } from "./lower-dense.js";
import { matricesAt, matrixAlgebra, splitMatrices, squareAt } from "./matrices.js";

/** The type of an output that says for each matrix where it is singular: 0, or a number counted from 1. */
export function infoType(leading: readonly number[]): ValueType {
  return { shape: leading, dtype: "i32" };
}

/** Solves A · X = B. Second output: info, the number of the first pivot that is 0; X is then NaN. */
export const solve: KernelOp = {
  kind: "kernel",
  name: "solve",
  infer(operands) {
    const [a, b] = [squareAt("solve", operands, 0), matricesAt("solve", operands, 1)];
    const { shape } = typeAt("solve", operands, 1);
    if (a.rows !== b.rows || !isSameShape(a.leading, b.leading)) {
      const given = `${formatShape(typeAt("solve", operands, 0).shape)} and ${formatShape(shape)}`;
      throw badShape("solve", `${given}: the matrices must have as many rows and the same leading axes.`);
    }
    return [{ shape, dtype: promotedDtype(operands) }, infoType(a.leading)];
  },
  saves: ([a]) => ({ operands: [0], outputs: a ? [0] : [] }),
  gradient(rule) {
    const { t, product } = matrixAlgebra(rule);
    const ofB = rule.apply(solve, [t(savedOperand(rule, 0)), rule.upstream]);
    const ofA = () => rule.apply(mul, [product(ofB, t(rule.output(0))), -1]);
    return [rule.needs(0) ? fitToOperand(rule, ofA(), 0) : undefined, fitToOperand(rule, ofB, 1)];
  },
  lower(lowering, operands, outputs) {
    const inputs = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const { rows, columns, batch } = splitMatrices(arrayAt(operands, 1));
    lowerDense(lowering, { kernel: denseKernels.solve, inputs, outputs, batch, numbers: [rows, columns] });
  },
};

/** A saved operand, which is a value because `infer` has rejected numbers. */
export function savedOperand<V, A>(rule: GradientRule<V, A>, index: number): V {
  return rule.operand(index) as V;
}

/** The inverse. Second output: info, as of `solve`. */
export const inverse: KernelOp = {
  kind: "kernel",
  name: "inverse",
  infer(operands) {
    const { leading } = squareAt("inverse", operands, 0);
    const { shape, dtype } = typeAt("inverse", operands, 0);
    return [{ shape, dtype }, infoType(leading)];
  },
  saves: () => ({ outputs: [0] }),
  gradient(rule) {
    const { t, product } = matrixAlgebra(rule);
    const transposed = t(rule.output(0));
    return [rule.apply(mul, [product(transposed, rule.upstream, transposed), -1])];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    lowerDense(lowering, { kernel: denseKernels.inverse, inputs: [input], outputs, batch, numbers: [rows] });
  },
};

/** The matrix of cofactors: det(A) · A⁻ᵀ for regular matrices, and defined for singular ones too. */
export const cofactor: KernelOp = {
  kind: "kernel",
  name: "cofactor",
  infer(operands) {
    squareAt("cofactor", operands, 0);
    return [typeAt("cofactor", operands, 0)].map(({ shape, dtype }) => ({ shape, dtype }));
  },
  saves: () => ({ operands: [0], outputs: [0] }),
  /** For regular matrices only. */
  gradient(rule) {
    const { t, product } = matrixAlgebra(rule);
    const { apply, upstream } = rule;
    const y = t(apply(inverse, [savedOperand(rule, 0)]));
    const total = apply(sum, [apply(mul, [upstream, y])], { axes: [-2, -1], keepsAxes: true });
    const result = rule.output(0);
    return [apply(sub, [apply(mul, [result, total]), product(result, t(upstream), y)])];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    lowerDense(lowering, { kernel: denseKernels.cofactor, inputs: [input], outputs, batch, numbers: [rows] });
  },
};

/** Rejects matrices without elements, which have no determinant here. */
function determinantType(op: string, operands: readonly (ValueType | number)[]): ValueType {
  const { rows, leading, dtype } = squareAt(op, operands, 0);
  if (rows > 0) return { shape: leading, dtype };
  throw badShape(op, `${formatShape(typeAt(op, operands, 0).shape)}: the matrices must have a row.`);
}

export const determinant: KernelOp = {
  kind: "kernel",
  name: "determinant",
  infer: (operands) => [determinantType("determinant", operands)],
  saves: () => ({ operands: [0] }),
  gradient: (rule) => [
    rule.apply(mul, [rule.apply(cofactor, [savedOperand(rule, 0)]), asMatrices(rule, rule.upstream)]),
  ],
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    lowerDense(lowering, {
      kernel: denseKernels.determinant,
      inputs: [input],
      outputs,
      batch,
      numbers: [rows],
    });
  },
};

/** [...] → [..., 1, 1]. */
function asMatrices<V, A>({ apply, valueType }: GradientRule<V, A>, value: V): V {
  return apply(reshape, [value], { shape: [...valueType(value).shape, 1, 1] });
}

/** log |det A|. Second output: the sign of the determinant, which has no gradient. */
export const logAbsDeterminant: KernelOp = {
  kind: "kernel",
  name: "logAbsDeterminant",
  infer(operands) {
    const type = determinantType("logAbsDeterminant", operands);
    return [type, type];
  },
  saves: () => ({ operands: [0] }),
  gradient(rule) {
    const { t } = matrixAlgebra(rule);
    const transposed = t(rule.apply(inverse, [savedOperand(rule, 0)]));
    return [rule.apply(mul, [transposed, asMatrices(rule, rule.upstream)])];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    const kernel = denseKernels.logAbsDeterminant;
    lowerDense(lowering, { kernel, inputs: [input], outputs, batch, numbers: [rows] });
  },
};

/** e to the power of a matrix. */
export const matrixExponential: KernelOp = {
  kind: "kernel",
  name: "matrixExponential",
  infer(operands) {
    squareAt("matrixExponential", operands, 0);
    return [typeAt("matrixExponential", operands, 0)].map(({ shape, dtype }) => ({ shape, dtype }));
  },
  saves: () => ({ operands: [0] }),
  /** The exponential of [[Aᵀ, G], [0, Aᵀ]] has the gradient in its upper right corner. */
  gradient(rule) {
    const { apply, upstream } = rule;
    const { t, rows, columns } = matrixAlgebra(rule);
    const size = rule.typeOf(0).shape.at(-1) ?? 0;
    const transposed = t(savedOperand(rule, 0));
    const zeros = apply(mul, [transposed, 0]);
    const upper = apply(cat, [transposed, upstream], { axis: -1 });
    const lower = apply(cat, [zeros, transposed], { axis: -1 });
    const exponential = apply(matrixExponential, [apply(cat, [upper, lower], { axis: -2 })]);
    return [columns(rows(exponential, 0, size), size, 2 * size)];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    const kernel = denseKernels.matrixExponential;
    lowerDense(lowering, { kernel, inputs: [input], outputs, batch, numbers: [rows] });
  },
};
