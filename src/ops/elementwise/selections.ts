/** Ops that choose or combine operands: signs, maxima without NaN, steps, interpolation, and replacement of NaN. */

import { type Dtype, type Expression, term } from "../../ir/index.js";
import type { KernelOp } from "../op.js";
import { elementwise } from "./elementwise.js";
import { withPartials } from "./partials.js";
import { isNegative } from "./sign-of.js";
import { unary } from "./unary.js";
import { rejectFractions } from "./whole-numbers.js";

const none = term.constant(0, "f32");
const oneLike = (like: Expression): Expression => term.constant(1, like.type);
const zeroLike = (like: Expression): Expression => term.constant(0, like.type);
const isNan = (x: Expression): Expression => term.ne(x, x);

/** The magnitude of the first operand with the sign of the second. */
export const copysign = withPartials({
  name: "copysign",
  value: ([a = none, b = none]) => {
    const magnitude = term.abs(a);
    return term.select(isNegative(b), term.neg(magnitude), magnitude);
  },
  partials: [
    ([a = none, b = none]) => {
      const isKept = term.eq(isNegative(a), isNegative(b));
      const slope = term.select(isKept, oneLike(a), term.constant(-1, a.type));
      return term.select(term.eq(a, 0), zeroLike(a), slope);
    },
    "zero",
  ],
});

export const signbit = elementwise({
  name: "signbit",
  operands: 1,
  result: "bool",
  value: ([x = none]) => isNegative(x),
  noGradient: "a boolean has no derivative",
});

/** 0 below 0 and for NaN, 1 above, and the second operand at 0. */
export const heaviside = elementwise({
  name: "heaviside",
  operands: 2,
  value: ([x = none, atZero = none]) =>
    term.select(term.eq(x, 0), atZero, term.select(term.gt(x, 0), oneLike(x), zeroLike(x))),
  noGradient: "it is zero except at 0, where there is none",
});

function extremeWithoutNan(name: "fmax" | "fmin", op: "max" | "min", wins: "ge" | "le"): KernelOp {
  const isFirst = (a: Expression, b: Expression): Expression => term.max(term[wins](a, b), isNan(b));
  return withPartials({
    name,
    result: "same",
    value: ([a = none, b = none]) => term.select(isNan(a), b, term.select(isNan(b), a, term[op](a, b))),
    partials: [
      ([a = none, b = none]) => term.select(isFirst(a, b), oneLike(a), zeroLike(a)),
      ([a = none, b = none]) => term.select(isFirst(a, b), zeroLike(a), oneLike(a)),
    ],
  });
}

/** The larger operand; NaN only if both are NaN. */
export const fmax = extremeWithoutNan("fmax", "max", "ge");
/** The smaller operand; NaN only if both are NaN. */
export const fmin = extremeWithoutNan("fmin", "min", "le");

/** a + w (b − a), computed from the nearer end, so that w = 1 gives b exactly. */
export const lerp = withPartials({
  name: "lerp",
  value: ([a = none, b = none, weight = none]) => {
    const distance = term.sub(b, a);
    return term.select(
      term.lt(term.abs(weight), 0.5),
      term.add(a, term.mul(weight, distance)),
      term.sub(b, term.mul(distance, term.sub(1, weight))),
    );
  },
  partials: [
    ([, , weight = none]) => term.sub(1, weight),
    ([, , weight = none]) => weight,
    ([a = none, b = none]) => term.sub(b, a),
  ],
});

interface Scaled {
  readonly value: number;
  readonly [other: string]: unknown;
}

const rejectFraction = (dtype: Dtype, { value }: Scaled): string | undefined =>
  rejectFractions(dtype, [value]);

/** x + value · a · b */
export const addcmul = withPartials<Scaled>({
  name: "addcmul",
  result: "same",
  scalars: ({ value }) => [value],
  rejects: rejectFraction,
  value: ([x = none, a = none, b = none], [scale = none]) => term.add(x, term.mul(scale, term.mul(a, b))),
  partials: [
    ([x = none]) => oneLike(x),
    ([, , b = none], [scale = none]) => term.mul(scale, b),
    ([, a = none], [scale = none]) => term.mul(scale, a),
  ],
});

/** x + value · a / b */
export const addcdiv = withPartials<Scaled>({
  name: "addcdiv",
  scalars: ({ value }) => [value],
  value: ([x = none, a = none, b = none], [scale = none]) => term.add(x, term.mul(scale, term.div(a, b))),
  partials: [
    ([x = none]) => oneLike(x),
    ([, , b = none], [scale = none]) => term.div(scale, b),
    ([, a = none, b = none], [scale = none]) => term.neg(term.mul(scale, term.div(a, term.mul(b, b)))),
  ],
});

/** Replaces NaN and infinities by numbers. */
export const nanToNum = unary<{ readonly nan: number; readonly posinf: number; readonly neginf: number }>({
  name: "nanToNum",
  result: "same",
  scalars: ({ nan, posinf, neginf }, compute) =>
    compute === "i32" || compute === "i64" ? [] : [nan, posinf, neginf],
  value: (x, nan, posinf, neginf) => {
    if (nan === undefined || posinf === undefined || neginf === undefined) return x;
    const finite = term.select(
      term.eq(x, Number.POSITIVE_INFINITY),
      posinf,
      term.select(term.eq(x, Number.NEGATIVE_INFINITY), neginf, x),
    );
    return term.select(isNan(x), nan, finite);
  },
  derivative: { of: "operand", passes: (x) => term.eq(term.sub(x, x), 0) },
});
