/** Activations of pieces of lines, each with its derivative in one kernel. At a corner the derivative is PyTorch's. */

import { type Expression, term } from "../../ir/index.js";
import type { KernelOp } from "../op.js";
import { unary } from "./unary.js";

const not = (condition: Expression): Expression => term.eq(condition, 0);
const either = (a: Expression, b: Expression): Expression => term.max(a, b);
const clamped = (x: Expression, low: Expression | number, high: Expression | number): Expression =>
  term.min(term.max(x, low), high);

/** x from `min` to `max`. Unlike that of clamp, its gradient is 0 at both. */
export type HardtanhAttributes = { readonly min: number; readonly max: number };

export const hardtanh: KernelOp<HardtanhAttributes> = unary<HardtanhAttributes>({
  name: "hardtanh",
  scalars: ({ min, max }) => [min, max],
  value: (x, min = x, max = x) => clamped(x, min, max),
  // The gradient of a NaN passes.
  derivative: {
    of: "operand",
    passes: (x, min = x, max = x) => not(either(term.le(x, min), term.ge(x, max))),
  },
});

/** x · relu6(x + 3) / 6 */
export const hardswish: KernelOp = unary({
  name: "hardswish",
  value: (x) => term.mul(x, term.mul(clamped(term.add(x, 3), 0, 6), 1 / 6)),
  derivative: {
    of: "operand",
    value: (x) => {
      const inside = term.add(term.mul(x, 1 / 3), 0.5);
      const one = term.constant(1, x.type);
      return term.select(term.lt(x, -3), term.constant(0, x.type), term.select(term.ge(x, 3), one, inside));
    },
  },
});

/** relu6(x + 3) / 6 */
export const hardsigmoid: KernelOp = unary({
  name: "hardsigmoid",
  value: (x) => term.mul(clamped(term.add(x, 3), 0, 6), 1 / 6),
  derivative: {
    of: "operand",
    value: (x) =>
      term.select(
        either(term.le(x, -3), term.ge(x, 3)),
        term.constant(0, x.type),
        term.constant(1 / 6, x.type),
      ),
  },
});

/** `lambda`: the half width of the range that becomes 0. */
export type ShrinkAttributes = { readonly lambda: number };

/** x outside of the range. */
export const hardshrink: KernelOp<ShrinkAttributes> = unary<ShrinkAttributes>({
  name: "hardshrink",
  scalars: ({ lambda }) => [lambda],
  value: (x, lambda = x) => term.select(term.le(term.abs(x), lambda), term.constant(0, x.type), x),
  derivative: { of: "operand", passes: (x, lambda = x) => not(term.le(term.abs(x), lambda)) },
});

/** The distance from the range, with the sign of x. */
export const softshrink: KernelOp<ShrinkAttributes> = unary<ShrinkAttributes>({
  name: "softshrink",
  scalars: ({ lambda }) => [lambda],
  value: (x, lambda = x) => term.sub(x, clamped(x, term.neg(lambda), lambda)),
  derivative: { of: "operand", passes: (x, lambda = x) => not(term.le(term.abs(x), lambda)) },
});

/** x above the threshold, and `value` elsewhere. */
export type ThresholdAttributes = { readonly threshold: number; readonly value: number };

export const threshold: KernelOp<ThresholdAttributes> = unary<ThresholdAttributes>({
  name: "threshold",
  scalars: ({ threshold, value }) => [threshold, value],
  value: (x, limit = x, value = x) => term.select(term.le(x, limit), value, x),
  derivative: { of: "operand", passes: (x, limit = x) => not(term.le(x, limit)) },
});
