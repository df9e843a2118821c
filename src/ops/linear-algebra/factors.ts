/** Decompositions into triangles and orthonormal bases: Cholesky, LU and QR. */

import type { Dtype } from "../../ir/index.js";
import { denseKernels } from "../../kernels/index.js";
import { add, mul, sub } from "../elementwise/arithmetic.js";
import { matmul } from "../matmul/matmul.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt } from "../op.js";
import { badShape, formatShape } from "../shape.js";
import { lowerDense } from "./lower-dense.js";
import { matricesAt, matrixAlgebra, splitMatrices, squareAt } from "./matrices.js";
import { infoType } from "./square.js";
import { triangularPart, triangularSolve } from "./triangles.js";

/** The lower triangle with half its diagonal: L with L + Lᵀ symmetric has the diagonal once. */
const halfLower = { isUpper: false, diagonalFactor: 0.5 } as const;

/** L of A = L · Lᵀ, of the symmetric part of A. Second output: info, the order of the first minor that is not positive; L is then NaN. */
export const choleskyFactor: KernelOp = {
  kind: "kernel",
  name: "choleskyFactor",
  infer(operands) {
    const { leading } = squareAt("choleskyFactor", operands, 0);
    const { shape, dtype } = typeAt("choleskyFactor", operands, 0);
    return [{ shape, dtype }, infoType(leading)];
  },
  saves: () => ({ outputs: [0] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    const { t, product } = matrixAlgebra(rule);
    const l = rule.output(0);
    const back = { isUpper: false, isTransposed: true } as const;
    const middle = apply(triangularPart, [product(t(l), upstream)], halfLower);
    const half = apply(triangularSolve, [l, t(apply(triangularSolve, [l, middle], back))], back);
    return [apply(mul, [apply(add, [half, t(half)]), 0.5])];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    const kernel = denseKernels.choleskyFactor;
    lowerDense(lowering, { kernel, inputs: [input], outputs, batch, numbers: [rows] });
  },
};

/** The permutation matrix P [..., rows, rows] of pivots [..., k]. */
export const luPermutation: KernelOp<{ readonly rows: number; readonly dtype: Dtype }> = {
  kind: "kernel",
  name: "luPermutation",
  noGradient: "pivots are integers",
  infer(operands, { rows, dtype }) {
    const { shape } = typeAt("luPermutation", operands, 0);
    return [{ shape: [...shape.slice(0, -1), rows, rows], dtype }];
  },
  lower(lowering, operands, outputs, { rows }) {
    const input = arrayAt(operands, 0);
    const batch = input.shape.slice(0, -1).reduce((product, size) => product * size, 1);
    const kernel = denseKernels.luPermutation;
    lowerDense(lowering, { kernel, inputs: [input], outputs, batch, numbers: [rows] });
  },
};

/**
 * L below the diagonal and U above it, of A = P · L · U. Further outputs: the pivots, and info, the number of the first pivot that is 0. The
 * gradient is that of square matrices.
 */
export const luFactor: KernelOp = {
  kind: "kernel",
  name: "luFactor",
  infer(operands) {
    const { leading, rows, columns } = matricesAt("luFactor", operands, 0);
    const { shape, dtype } = typeAt("luFactor", operands, 0);
    return [
      { shape, dtype },
      { shape: [...leading, Math.min(rows, columns)], dtype: "i32" },
      infoType(leading),
    ];
  },
  saves: () => ({ outputs: [0, 1] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    const { rows, columns, dtype } = splitMatrices(rule.typeOf(0));
    if (rows !== columns)
      throw badShape(
        "luFactor",
        `the gradient of ${formatShape(rule.typeOf(0).shape)} is that of square matrices only.`,
      );
    const { t, product } = matrixAlgebra(rule);
    const lu = rule.output(0);
    const upper = { isUpper: true } as const;
    const unitLower = { isUpper: false, isUnit: true } as const;
    const strictlyLower = { isUpper: false, offset: -1 } as const;
    // Lᵀ · G = strictly lower part of Lᵀ times G, and G itself: the diagonal of L is ones.
    const ofL = apply(triangularPart, [upstream], strictlyLower);
    const l = apply(triangularPart, [lu], strictlyLower);
    const fromL = apply(triangularPart, [apply(add, [product(t(l), ofL), ofL])], strictlyLower);
    const u = apply(triangularPart, [lu], upper);
    const ofU = apply(triangularPart, [upstream], upper);
    const fromU = apply(triangularPart, [product(ofU, t(u))], upper);
    const left = apply(triangularSolve, [lu, apply(add, [fromL, fromU])], {
      ...unitLower,
      isTransposed: true,
    });
    const both = t(apply(triangularSolve, [lu, t(left)], upper));
    const p = apply(luPermutation, [rule.output(1)], { rows, dtype });
    return [apply(matmul, [p, both])];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, columns, batch } = splitMatrices(input);
    lowerDense(lowering, {
      kernel: denseKernels.luFactor,
      inputs: [input],
      outputs,
      batch,
      numbers: [rows, columns],
    });
  },
};

/** A [..., m, n] = Q · R for m ≥ n, packed as [Qᵀ | R]: [..., n, m + n]. */
export const qrFactor: KernelOp = {
  kind: "kernel",
  name: "qrFactor",
  infer(operands) {
    const { leading, rows, columns, dtype } = matricesAt("qrFactor", operands, 0);
    if (rows < columns)
      throw badShape(
        "qrFactor",
        `${formatShape(typeAt("qrFactor", operands, 0).shape)} has more columns than rows.`,
      );
    return [{ shape: [...leading, columns, rows + columns], dtype }];
  },
  saves: () => ({ outputs: [0] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    const { t, product } = matrixAlgebra(rule);
    const { rows: m, columns: n } = splitMatrices(rule.typeOf(0));
    const [q, r] = unpackQr(rule, rule.output(0), m, n);
    const [ofQ, ofR] = unpackQr(rule, upstream, m, n);
    const difference = apply(sub, [product(r, t(ofR)), product(t(ofQ), q)]);
    const half = apply(triangularPart, [difference], halfLower);
    const total = apply(add, [ofQ, product(q, apply(add, [half, t(half)]))]);
    return [t(apply(triangularSolve, [r, t(total)], { isUpper: true }))];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, columns, batch } = splitMatrices(input);
    lowerDense(lowering, {
      kernel: denseKernels.qrFactor,
      inputs: [input],
      outputs,
      batch,
      numbers: [rows, columns],
    });
  },
};

function unpackQr<V, A>(rule: GradientRule<V, A>, packed: V, m: number, n: number): readonly [V, V] {
  const { t, columns } = matrixAlgebra(rule);
  return [t(columns(packed, 0, m)), columns(packed, m, m + n)];
}

/** Orthonormal columns Q [..., m, k] → further ones that complete the basis: [..., m, m − k]. */
export const orthonormalComplement: KernelOp = {
  kind: "kernel",
  name: "orthonormalComplement",
  noGradient: "the further vectors of a basis are not unique",
  infer(operands) {
    const { leading, rows, columns, dtype } = matricesAt("orthonormalComplement", operands, 0);
    return [{ shape: [...leading, rows, rows - columns], dtype }];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, columns, batch } = splitMatrices(input);
    const kernel = denseKernels.orthonormalComplement;
    lowerDense(lowering, { kernel, inputs: [input], outputs, batch, numbers: [rows, columns] });
  },
};
