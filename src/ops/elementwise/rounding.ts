/**
 * Rounding and remainders. Integers are divided in f64, which holds every quotient of two i32 well enough to round it exactly; quotients of i64
 * are corrected by their remainders.
 */

import { type Expression, term } from "../../ir/index.js";
import type { KernelOp } from "../op.js";
import { withPartials } from "./partials.js";
import { isNegative } from "./sign-of.js";
import { unary } from "./unary.js";

const none = term.constant(0, "f32");
const isInteger = ({ type }: Expression): boolean => type === "i32" || type === "i64";

/** Halves are rounded to even. */
export const round = unary({
  name: "round",
  result: "same",
  value: (x) => (isInteger(x) ? x : term.round(x)),
  derivative: "zero",
});
export const trunc = unary({
  name: "trunc",
  result: "same",
  value: (x) => (isInteger(x) ? x : term.trunc(x)),
  derivative: "zero",
});
export const frac = unary({
  name: "frac",
  value: (x) => term.sub(x, term.trunc(x)),
  derivative: { of: "operand", value: (x) => term.constant(1, x.type) },
});

/** The quotient of two integers, rounded by an op of floats. Division by 0 saturates. */
function integerQuotient(op: "floor" | "trunc", a: Expression, b: Expression): Expression {
  if (a.type === "i64") return longQuotient(op, a, b);
  const quotient = term.div(term.convert(a, "f64"), term.convert(b, "f64"));
  return term.convert(term[op](quotient), "i32");
}

/**
 * The same for i64. A quotient in f64 is off by at most 2¹², so that the quotient of its remainder is exact, except that it may be rounded to the
 * next whole number. The remainder then has the wrong sign.
 */
function longQuotient(op: "floor" | "trunc", a: Expression, b: Expression): Expression {
  const divisor = term.convert(b, "f64");
  const divide = (x: Expression): Expression =>
    term.convert(term.trunc(term.div(term.convert(x, "f64"), divisor)), "i64");
  const first = divide(a);
  const rest = term.sub(a, term.mul(first, b));
  const second = divide(rest);
  const last = term.sub(rest, term.mul(second, b));
  const quotient = term.add(first, second);
  const isNegative = term.lt(last, 0);
  const signFrom = op === "floor" ? b : a;
  const isWrong = term.min(term.ne(last, 0), term.ne(isNegative, term.lt(signFrom, 0)));
  const towards = term.select(
    term.eq(isNegative, term.lt(b, 0)),
    term.constant(1, "i64"),
    term.constant(-1, "i64"),
  );
  const corrected = term.select(isWrong, term.add(quotient, towards), quotient);
  return term.select(term.eq(b, 0), first, corrected);
}

/** fmod plus the divisor where their signs differ. */
function flooredRemainder(a: Expression, b: Expression): Expression {
  const rest = term.fmod(a, b);
  const differs = term.min(term.ne(rest, 0), term.ne(term.lt(rest, 0), term.lt(b, 0)));
  return term.select(differs, term.add(rest, b), rest);
}

function remainderOp(name: string, rounding: "floor" | "trunc"): KernelOp {
  return withPartials({
    name,
    result: "same",
    value: ([a = none, b = none]) => {
      if (isInteger(a)) return term.sub(a, term.mul(integerQuotient(rounding, a, b), b));
      return rounding === "floor" ? flooredRemainder(a, b) : term.fmod(a, b);
    },
    partials: [
      ([a = none]) => term.constant(1, a.type),
      ([a = none, b = none]) => term.neg(term[rounding](term.div(a, b))),
    ],
  });
}

/** The remainder with the sign of the divisor, as Python's %. */
export const remainder = remainderOp("remainder", "floor");
/** The remainder with the sign of the dividend, as C's fmod. */
export const fmod = remainderOp("fmod", "trunc");

/**
 * ⌊a / b⌋ of the exact quotient, as Python's //. `a − remainder` is a multiple of b up to rounding, so that its quotient is rounded to the
 * nearest whole number. A division by 0 is infinite or NaN.
 */
function floatFloorDivide(a: Expression, b: Expression): Expression {
  const rest = term.fmod(a, b);
  const differs = term.min(term.ne(rest, 0), term.ne(term.lt(rest, 0), term.lt(b, 0)));
  const truncated = term.div(term.sub(a, rest), b);
  const quotient = term.select(differs, term.sub(truncated, 1), truncated);
  const below = term.floor(quotient);
  const whole = term.select(term.gt(term.sub(quotient, below), 0.5), term.add(below, 1), below);
  const exact = term.div(a, b);
  const zero = term.constant(0, a.type);
  const signedZero = term.select(isNegative(exact), term.neg(zero), zero);
  return term.select(term.eq(b, 0), exact, term.select(term.eq(quotient, 0), signedZero, whole));
}

export const floorDivide = withPartials({
  name: "floorDivide",
  result: "same",
  value: ([a = none, b = none]) => (isInteger(a) ? integerQuotient("floor", a, b) : floatFloorDivide(a, b)),
  partials: ["zero", "zero"],
});
