/** Activations, each with its derivative in one kernel. All are finite for finite operands. */

import { type Expression, term } from "../../ir/index.js";
import type { KernelOp } from "../op.js";
import { unary } from "./unary.js";

const oneLike = (like: Expression): Expression => term.constant(1, like.type);
const zeroLike = (like: Expression): Expression => term.constant(0, like.type);

export const relu: KernelOp = unary({
  name: "relu",
  result: "same",
  value: (x) => term.max(x, 0),
  // The gradient of a NaN passes too, as in PyTorch, so that earlier ops see it.
  derivative: { of: "output", passes: (y) => term.max(term.gt(y, 0), term.ne(y, y)) },
});

export const leakyRelu = unary<{ readonly negativeSlope: number }>({
  name: "leakyRelu",
  scalars: ({ negativeSlope }) => [negativeSlope],
  value: (x, slope = x) => term.select(term.gt(x, 0), x, term.mul(slope, x)),
  derivative: { of: "operand", value: (x, slope = x) => term.select(term.gt(x, 0), oneLike(x), slope) },
});

export const tanh: KernelOp = unary({
  name: "tanh",
  value: term.tanh,
  derivative: { of: "output", value: (y) => term.sub(1, term.mul(y, y)) },
});

export const sigmoid: KernelOp = unary({
  name: "sigmoid",
  value: term.sigmoid,
  derivative: { of: "output", value: (y) => term.mul(y, term.sub(1, y)) },
});

export const silu: KernelOp = unary({
  name: "silu",
  value: (x) => term.mul(x, term.sigmoid(x)),
  derivative: {
    of: "operand",
    value: (x) => {
      const s = term.sigmoid(x);
      return term.mul(s, term.add(1, term.mul(x, term.sub(1, s))));
    },
  },
});

export const softplus: KernelOp = unary({
  name: "softplus",
  value: term.softplus,
  derivative: { of: "operand", value: term.sigmoid },
});

/** x·Φ(x), with the error function. */
export const gelu: KernelOp = unary({
  name: "gelu",
  value: (x) => term.mul(x, normalCdf(x)),
  derivative: {
    of: "operand",
    value: (x) => {
      const density = term.mul(1 / Math.sqrt(2 * Math.PI), term.exp(term.mul(-0.5, term.mul(x, x))));
      // For large |x| the density is 0, and an infinite x times 0 would be NaN.
      const densityTerm = term.select(term.gt(density, 0), term.mul(x, density), zeroLike(x));
      return term.add(normalCdf(x), densityTerm);
    },
  },
});

const rootTwoOverPi = Math.sqrt(2 / Math.PI);
const cubic = 0.044715;

/** GELU with the tanh approximation, as in GPT-2. */
export const geluTanh: KernelOp = unary({
  name: "geluTanh",
  value: (x) => term.mul(x, tanhCdf(x)),
  derivative: {
    of: "operand",
    // With s = sigmoid(2u): d(x·s) = s + x · 2s(1−s) · u′.
    value: (x) => {
      const cdf = tanhCdf(x);
      const innerDerivative = term.mul(rootTwoOverPi, term.add(1, term.mul(3 * cubic, term.mul(x, x))));
      const cdfDerivative = term.mul(term.mul(2, term.mul(cdf, term.sub(1, cdf))), innerDerivative);
      // Where s is saturated its derivative is 0, even if u′ overflows.
      const slopeTerm = term.select(
        term.gt(term.mul(cdf, term.sub(1, cdf)), 0),
        term.mul(x, cdfDerivative),
        zeroLike(x),
      );
      return term.add(cdf, slopeTerm);
    },
  },
});

/** Φ(x) = (1 + erf(x/√2))/2 */
function normalCdf(x: Expression): Expression {
  return term.mul(0.5, term.add(1, term.erf(term.mul(x, Math.SQRT1_2))));
}

/** (1 + tanh u)/2 = sigmoid(2u), which keeps its digits if tanh u is near −1. */
function tanhCdf(x: Expression): Expression {
  const cube = term.mul(x, term.mul(x, x));
  return term.sigmoid(term.mul(2 * rootTwoOverPi, term.add(x, term.mul(cubic, cube))));
}
