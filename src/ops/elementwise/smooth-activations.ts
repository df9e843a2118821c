/** Activations of exponentials, each with its derivative in one kernel. */

import { type Expression, term } from "../../ir/index.js";
import type { KernelOp } from "../op.js";
import { unary } from "./unary.js";

/** ELU, SELU and CELU: `scale · x` where x is positive, and `scale · alpha · (e^(inputScale · x) − 1)` elsewhere. */
export type EluAttributes = { readonly alpha: number; readonly scale: number; readonly inputScale: number };

export const elu: KernelOp<EluAttributes> = unary<EluAttributes>({
  name: "elu",
  scalars: ({ alpha, scale, inputScale }) => [scale, scale * alpha, inputScale],
  value: (x, scale = x, factor = x, inputScale = x) =>
    term.select(term.gt(x, 0), term.mul(scale, x), term.mul(factor, term.expm1(term.mul(inputScale, x)))),
  derivative: {
    of: "operand",
    value: (x, scale = x, factor = x, inputScale = x) =>
      term.select(
        term.gt(x, 0),
        scale,
        term.mul(term.mul(factor, inputScale), term.exp(term.mul(inputScale, x))),
      ),
  },
});

/** x · tanh(softplus(x)) */
export const mish: KernelOp = unary({
  name: "mish",
  value: (x) => term.mul(x, term.tanh(term.softplus(x))),
  derivative: {
    of: "operand",
    value: (x) => {
      const t = term.tanh(term.softplus(x));
      return term.add(t, term.mul(term.mul(x, term.sigmoid(x)), term.sub(1, term.mul(t, t))));
    },
  },
});

/** log(sigmoid(x)), which does not underflow. */
export const logSigmoid: KernelOp = unary({
  name: "logSigmoid",
  value: (x) => term.neg(term.softplus(term.neg(x))),
  derivative: { of: "operand", value: (x) => term.sigmoid(term.neg(x)) },
});

const onePlusAbs = (x: Expression): Expression => term.add(1, term.abs(x));

/** x / (1 + |x|) */
export const softsign: KernelOp = unary({
  name: "softsign",
  value: (x) => term.div(x, onePlusAbs(x)),
  derivative: {
    of: "operand",
    value: (x) => {
      const inverse = term.div(1, onePlusAbs(x));
      return term.mul(inverse, inverse);
    },
  },
});

/** x − tanh(x) */
export const tanhshrink: KernelOp = unary({
  name: "tanhshrink",
  value: (x) => term.sub(x, term.tanh(x)),
  derivative: {
    of: "operand",
    value: (x) => {
      const t = term.tanh(x);
      return term.mul(t, t);
    },
  },
});

/** log(1 + e^(beta · x)) / beta, and x where beta · x is above the threshold. */
export type ScaledSoftplusAttributes = { readonly beta: number; readonly threshold: number };

export const scaledSoftplus: KernelOp<ScaledSoftplusAttributes> = unary<ScaledSoftplusAttributes>({
  name: "scaledSoftplus",
  scalars: ({ beta, threshold }) => [beta, threshold],
  value: (x, beta = x, threshold = x) => {
    const scaled = term.mul(beta, x);
    return term.select(term.gt(scaled, threshold), x, term.div(term.softplus(scaled), beta));
  },
  derivative: {
    of: "operand",
    value: (x, beta = x, threshold = x) => {
      const scaled = term.mul(beta, x);
      return term.select(term.gt(scaled, threshold), term.constant(1, x.type), term.sigmoid(scaled));
    },
  },
});
