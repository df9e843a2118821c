/** Exponentials and logarithms to other bases, the error function's relatives, and the gamma function's. */

import { type Expression, term } from "../../ir/index.js";
import { besselI0, besselI1 } from "./bessel-expressions.js";
import { digammaOf, trigammaOf } from "./gamma-expressions.js";
import { inverseErf } from "./inverse-erf.js";
import { withPartials } from "./partials.js";
import { unary } from "./unary.js";

const none = term.constant(0, "f32");
const oneLike = (like: Expression): Expression => term.constant(1, like.type);
const zeroLike = (like: Expression): Expression => term.constant(0, like.type);

export const exp2 = unary({
  name: "exp2",
  value: term.exp2,
  derivative: { of: "output", value: (y) => term.mul(Math.LN2, y) },
});
export const log2 = unary({
  name: "log2",
  value: term.log2,
  derivative: { of: "operand", value: (x) => term.div(Math.LOG2E, x) },
});
export const log10 = unary({
  name: "log10",
  value: term.log10,
  derivative: { of: "operand", value: (x) => term.div(Math.LOG10E, x) },
});

const slopeOfErf = 2 / Math.sqrt(Math.PI);

export const erfc = unary({
  name: "erfc",
  value: term.erfc,
  derivative: {
    of: "operand",
    value: (x) => term.mul(-slopeOfErf, term.exp(term.neg(term.mul(x, x)))),
  },
});
/** ±Infinity at ±1, and NaN outside. */
export const erfinv = unary({
  name: "erfinv",
  value: inverseErf,
  derivative: { of: "output", value: (y) => term.mul(1 / slopeOfErf, term.exp(term.mul(y, y))) },
});
export const lgamma = unary({
  name: "lgamma",
  value: term.lgamma,
  derivative: { of: "operand", value: digammaOf },
});
export const digamma = unary({
  name: "digamma",
  value: digammaOf,
  derivative: { of: "operand", value: trigammaOf },
});

/** The modified Bessel function of the first kind, of order 0. */
export const i0 = unary({
  name: "i0",
  value: besselI0,
  derivative: { of: "operand", value: besselI1 },
});

/** ln(x / (1 − x)), of x clamped to [eps, 1 − eps] if there is an eps. */
export const logit = unary<{ readonly eps?: number }>({
  name: "logit",
  scalars: ({ eps }) =>
    eps === undefined ? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY] : [eps, 1 - eps],
  value: (x, low = x, high = x) => {
    const clamped = term.min(term.max(x, low), high);
    return term.log(term.div(clamped, term.sub(1, clamped)));
  },
  derivative: {
    of: "operand",
    value: (x, low = x, high = x) => {
      const isInside = term.min(term.ge(x, low), term.le(x, high));
      return term.select(isInside, term.div(oneLike(x), term.mul(x, term.sub(1, x))), zeroLike(x));
    },
  },
});

/** x · ln y, and 0 at x = 0 for every y except NaN. */
export const xlogy = withPartials({
  name: "xlogy",
  value: ([x = none, y = none]) => {
    const isZero = term.min(term.eq(x, 0), term.eq(y, y));
    return term.select(isZero, zeroLike(x), term.mul(x, term.log(y)));
  },
  partials: [
    ([x = none, y = none]) => {
      const hasNoSlope = term.min(term.eq(x, 0), term.le(y, 0));
      return term.select(hasNoSlope, zeroLike(x), term.log(y));
    },
    ([x = none, y = none]) => term.div(x, y),
  ],
});

/** The larger operand plus ln(1 + base^−|a − b|) in units of the base. Equal infinities are the result themselves. */
function logSum(base: number) {
  const scale = Math.log(base);
  return ([a = none, b = none]: readonly Expression[]): Expression => {
    const distance = term.abs(term.sub(a, b));
    const correction = term.log1p(term.exp(term.mul(-scale, distance)));
    const isInfinite = term.min(term.eq(a, b), term.eq(term.abs(a), Number.POSITIVE_INFINITY));
    const larger = term.max(a, b);
    return term.select(isInfinite, a, term.add(larger, term.mul(1 / scale, correction)));
  };
}

function logSumOp(name: string, base: number) {
  const share = (a: Expression, b: Expression): Expression =>
    term.sigmoid(term.mul(Math.log(base), term.sub(a, b)));
  return withPartials({
    name,
    value: logSum(base),
    partials: [([a = none, b = none]) => share(a, b), ([a = none, b = none]) => share(b, a)],
  });
}

export const logaddexp = logSumOp("logaddexp", Math.E);
export const logaddexp2 = logSumOp("logaddexp2", 2);
