/** Elementary functions of one operand, with their derivatives. */

import { type Expression, term } from "../../ir/index.js";
import { signOf } from "./sign-of.js";
import { unary } from "./unary.js";
import { rejectFractions } from "./whole-numbers.js";

const [minI32, maxI32] = [-(2 ** 31), 2 ** 31 - 1];

const oneLike = (like: Expression): Expression => term.constant(1, like.type);

export const neg = unary({
  name: "neg",
  rejects: (dtype) =>
    dtype === "bool" ? "booleans have no negative; use logicalNot or convert them first." : undefined,
  result: "same",
  value: term.neg,
  derivative: { of: "operand", value: (x) => term.constant(-1, x.type) },
});

/** Its derivative at 0 is 0, as in PyTorch. */
export const abs = unary({
  name: "abs",
  result: "same",
  value: term.abs,
  derivative: { of: "operand", value: (x) => signOf(x) },
});

export const sign = unary({ name: "sign", result: "same", value: (x) => signOf(x), derivative: "zero" });
export const floor = unary({
  name: "floor",
  result: "same",
  value: (x) => (x.type === "i32" || x.type === "i64" ? x : term.floor(x)),
  derivative: "zero",
});
export const ceil = unary({
  name: "ceil",
  result: "same",
  value: (x) => (x.type === "i32" || x.type === "i64" ? x : term.ceil(x)),
  derivative: "zero",
});

export const exp = unary({ name: "exp", value: term.exp, derivative: { of: "output", value: (y) => y } });
export const expm1 = unary({
  name: "expm1",
  value: term.expm1,
  derivative: { of: "output", value: (y) => term.add(y, 1) },
});
export const log = unary({
  name: "log",
  value: term.log,
  derivative: { of: "operand", value: (x) => term.div(oneLike(x), x) },
});
export const log1p = unary({
  name: "log1p",
  value: term.log1p,
  derivative: { of: "operand", value: (x) => term.div(oneLike(x), term.add(x, 1)) },
});
export const sqrt = unary({
  name: "sqrt",
  value: term.sqrt,
  derivative: { of: "output", value: (y) => term.div(0.5, y) },
});
export const rsqrt = unary({
  name: "rsqrt",
  value: term.rsqrt,
  derivative: { of: "output", value: (y) => term.mul(-0.5, term.mul(y, term.mul(y, y))) },
});
export const square = unary({
  name: "square",
  result: "same",
  value: (x) => term.mul(x, x),
  derivative: { of: "operand", value: (x) => term.mul(2, x) },
});
export const reciprocal = unary({
  name: "reciprocal",
  value: (x) => term.div(oneLike(x), x),
  derivative: { of: "output", value: (y) => term.neg(term.mul(y, y)) },
});
export const sin = unary({ name: "sin", value: term.sin, derivative: { of: "operand", value: term.cos } });
export const cos = unary({
  name: "cos",
  value: term.cos,
  derivative: { of: "operand", value: (x) => term.neg(term.sin(x)) },
});
export const erf = unary({
  name: "erf",
  value: term.erf,
  derivative: {
    of: "operand",
    value: (x) => term.mul(2 / Math.sqrt(Math.PI), term.exp(term.neg(term.mul(x, x)))),
  },
});

/** Both bounds in one op. A missing bound is infinite. Outside the bounds the derivative is 0. */
export const clamp = unary<{ readonly min?: number; readonly max?: number }>({
  name: "clamp",
  result: "same",
  scalars: ({ min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY }, compute) =>
    compute === "i32" ? [Math.max(min, minI32), Math.min(max, maxI32)] : [min, max],
  rejects: (dtype, { min = 0, max = 0 }) => rejectFractions(dtype, [min, max]),
  value: (x, low = x, high = x) => term.min(term.max(x, low), high),
  derivative: {
    of: "operand",
    passes: (x, low = x, high = x) => term.min(term.ge(x, low), term.le(x, high)),
  },
});

/** Sets every element to one number, also elements that are NaN. */
export const fill = unary<{ readonly value: number }>({
  name: "fill",
  result: "same",
  scalars: ({ value }) => [value],
  rejects: (dtype, { value }) => rejectFractions(dtype, [value]),
  value: (x, value = x) => value,
  derivative: "zero",
});
