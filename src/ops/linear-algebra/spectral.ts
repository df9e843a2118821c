/** Eigenvalues of symmetric matrices, singular values, and the pseudo-inverse. */

import { denseKernels } from "../../kernels/index.js";
import { sum } from "../broadcast.js";
import { add, div, mul, sub } from "../elementwise/arithmetic.js";
import { cat } from "../movement/cat.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt } from "../op.js";
import { recalled } from "../recall.js";
import { badShape, formatShape, isSameShape, sizeOf } from "../shape.js";
import { lowerDense } from "./lower-dense.js";
import { matricesAt, matrixAlgebra, splitMatrices, squareAt } from "./matrices.js";
import { savedOperand } from "./square.js";

/** X[i, j] / (w[j] − w[i]), and 0 where X is 0 or i = j: vectors of equal values may be rotated freely. */
export const gapQuotient: KernelOp = {
  kind: "kernel",
  name: "gapQuotient",
  infer(operands) {
    const { rows, leading } = squareAt("gapQuotient", operands, 0);
    const [x, w] = [typeAt("gapQuotient", operands, 0), typeAt("gapQuotient", operands, 1)];
    if (!isSameShape([...leading, rows], w.shape))
      throw badShape(
        "gapQuotient",
        `${formatShape(x.shape)} and ${formatShape(w.shape)}: one value for each row.`,
      );
    return [{ shape: x.shape, dtype: x.dtype }];
  },
  saves: ([, w]) => ({ operands: [1], outputs: w ? [0] : [] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    const w = savedOperand(rule, 1);
    const ofX = apply(gapQuotient, [upstream, w]);
    return [ofX, rule.needs(1) ? ofValues() : undefined];

    function ofValues() {
      const weighted = apply(mul, [ofX, rule.output(0)]);
      return apply(sub, [apply(sum, [weighted], { axes: -1 }), apply(sum, [weighted], { axes: -2 })]);
    }
  },
  lower(lowering, operands, outputs) {
    const inputs = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const { rows, batch } = splitMatrices(arrayAt(operands, 0));
    lowerDense(lowering, { kernel: denseKernels.gapQuotient, inputs, outputs, batch, numbers: [rows] });
  },
};

/** (X + Xᵀ) / 2: the ops read the symmetric part of a matrix. */
function symmetricPart<V, A>(rule: GradientRule<V, A>, value: V): V {
  return rule.apply(mul, [rule.apply(add, [value, matrixAlgebra(rule).t(value)]), 0.5]);
}

/** Of the symmetric part of A [..., n, n]: the eigenvalues in ascending order, in the first row; below, a column for each vector. */
export const eighFactor: KernelOp = {
  kind: "kernel",
  name: "eighFactor",
  infer(operands) {
    const { leading, rows, dtype } = squareAt("eighFactor", operands, 0);
    return [{ shape: [...leading, rows + 1, rows], dtype }];
  },
  saves: () => ({ outputs: [0] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    const { t, product, rows, fromRow } = matrixAlgebra(rule);
    const n = rule.typeOf(0).shape.at(-1) ?? 0;
    const packed = rule.output(0);
    const [values, vectors] = [fromRow(rows(packed, 0, 1)), rows(packed, 1, n + 1)];
    const [ofValues, ofVectors] = [rows(upstream, 0, 1), rows(upstream, 1, n + 1)];
    const inner = apply(gapQuotient, [product(t(vectors), ofVectors), values]);
    const left = apply(add, [product(vectors, inner), apply(mul, [vectors, ofValues])]);
    return [symmetricPart(rule, product(left, t(vectors)))];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    lowerDense(lowering, {
      kernel: denseKernels.eighFactor,
      inputs: [input],
      outputs,
      batch,
      numbers: [rows],
    });
  },
};

const recalledEigh = recalled(eighFactor);

/** The eigenvalues alone: their gradient exists for equal values too. Second output: the vectors, in columns. */
export const eighValues: KernelOp = {
  kind: "kernel",
  name: "eighValues",
  infer(operands) {
    const { leading, rows, dtype } = squareAt("eighValues", operands, 0);
    const { shape } = typeAt("eighValues", operands, 0);
    return [
      { shape: [...leading, rows], dtype },
      { shape, dtype },
    ];
  },
  saves: () => ({ outputs: [0, 1] }),
  gradient(rule) {
    const { t, product, asRow, rows } = matrixAlgebra(rule);
    const vectors = rule.isRecorded ? recalledVectors() : rule.output(1);
    return [product(rule.apply(mul, [vectors, asRow(rule.upstream)]), t(vectors))];

    function recalledVectors() {
      const n = rule.typeOf(0).shape.at(-1) ?? 0;
      const packed = rule.apply(cat, [asRow(rule.constantOutput(0)), rule.constantOutput(1)], { axis: -2 });
      return rows(rule.apply(recalledEigh, [rule.link(0), packed]), 1, n + 1);
    }
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, batch } = splitMatrices(input);
    lowerDense(lowering, {
      kernel: denseKernels.eighValues,
      inputs: [input],
      outputs,
      batch,
      numbers: [rows],
    });
  },
};

/** A [..., m, n] = U · diag(S) · Vᵀ, packed as [U; S; V]: [..., m + 1 + n, min(m, n)]. */
export const svdFactor: KernelOp = {
  kind: "kernel",
  name: "svdFactor",
  infer(operands) {
    const { leading, rows, columns, dtype } = matricesAt("svdFactor", operands, 0);
    return [{ shape: [...leading, rows + 1 + columns, Math.min(rows, columns)], dtype }];
  },
  saves: () => ({ outputs: [0] }),
  gradient(rule) {
    const { apply, upstream } = rule;
    const { t, product, rows, fromRow } = matrixAlgebra(rule);
    const { rows: m, columns: n } = splitMatrices(rule.typeOf(0));
    const unpack = (packed: typeof upstream) =>
      [rows(packed, 0, m), rows(packed, m, m + 1), rows(packed, m + 1, m + 1 + n)] as const;
    const [u, s, v] = unpack(rule.output(0));
    const [ofU, ofS, ofV] = unpack(upstream);
    const squares = fromRow(apply(mul, [s, s]));
    const [aligned, alignedV] = [product(t(u), ofU), product(t(v), ofV)];
    const skew = (x: typeof upstream) => apply(gapQuotient, [apply(sub, [x, t(x)]), squares]);
    const inner = apply(add, [apply(mul, [skew(aligned), s]), apply(mul, [t(s), skew(alignedV)])]);
    const terms = [product(apply(add, [product(u, inner), apply(mul, [u, ofS])]), t(v))];
    // Changes of vectors out of the space that all of them span.
    if (m > n) {
      const outside = apply(sub, [ofU, product(u, aligned)]);
      terms.push(product(apply(div, [outside, s]), t(v)));
    }
    if (n > m) {
      const outside = apply(sub, [ofV, product(v, alignedV)]);
      terms.push(product(u, t(apply(div, [outside, s]))));
    }
    return [terms.reduce((total, term) => apply(add, [total, term]))];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, columns, batch } = splitMatrices(input);
    lowerDense(lowering, {
      kernel: denseKernels.svdFactor,
      inputs: [input],
      outputs,
      batch,
      numbers: [rows, columns],
    });
  },
};

const recalledSvd = recalled(svdFactor);

/** The singular values alone. Second output: `svdFactor`'s. */
export const svdValues: KernelOp = {
  kind: "kernel",
  name: "svdValues",
  infer(operands) {
    const { leading, rows, columns, dtype } = matricesAt("svdValues", operands, 0);
    const count = Math.min(rows, columns);
    return [
      { shape: [...leading, count], dtype },
      { shape: [...leading, rows + 1 + columns, count], dtype },
    ];
  },
  saves: () => ({ outputs: [1] }),
  gradient(rule) {
    const { t, product, rows, asRow } = matrixAlgebra(rule);
    const { rows: m, columns: n } = splitMatrices(rule.typeOf(0));
    const packed = rule.isRecorded
      ? rule.apply(recalledSvd, [rule.link(0), rule.constantOutput(1)])
      : rule.output(1);
    const scaled = rule.apply(mul, [rows(packed, 0, m), asRow(rule.upstream)]);
    return [product(scaled, t(rows(packed, m + 1, m + 1 + n)))];
  },
  lower(lowering, operands, outputs) {
    const input = arrayAt(operands, 0);
    const { rows, columns, batch } = splitMatrices(input);
    lowerDense(lowering, {
      kernel: denseKernels.svdValues,
      inputs: [input],
      outputs,
      batch,
      numbers: [rows, columns],
    });
  },
};

/** Singular values up to `relative` times the largest one, or up to `absolute`, count as 0. */
export type PseudoInverseAttributes = { readonly relative: number; readonly absolute: number };

/** The Moore-Penrose inverse. Its gradient holds where the rank does not change. */
export const pseudoInverse: KernelOp<PseudoInverseAttributes> = {
  kind: "kernel",
  name: "pseudoInverse",
  infer(operands) {
    const { leading, rows, columns, dtype } = matricesAt("pseudoInverse", operands, 0);
    return [{ shape: [...leading, columns, rows], dtype }];
  },
  saves: () => ({ operands: [0], outputs: [0] }),
  gradient(rule) {
    const { apply } = rule;
    const { t, product } = matrixAlgebra(rule);
    const [a, x] = [savedOperand(rule, 0), rule.output(0)];
    const [xt, gt] = [t(x), t(rule.upstream)];
    const g = product(gt, x);
    const left = product(apply(sub, [g, product(a, x, g)]), xt);
    const right = product(xt, x, apply(sub, [gt, product(gt, x, a)]));
    return [apply(sub, [apply(add, [left, right]), product(xt, rule.upstream, xt)])];
  },
  lower(lowering, operands, outputs, { relative, absolute }) {
    const input = arrayAt(operands, 0);
    const { leading, rows, columns } = splitMatrices(input);
    const numbers = [rows, columns, relative, absolute];
    const kernel = denseKernels.pseudoInverse;
    lowerDense(lowering, { kernel, inputs: [input], outputs, batch: sizeOf(leading), numbers });
  },
};
