/** Trigonometric and hyperbolic functions, their inverses, and angles. */

import { type Expression, term } from "../../ir/index.js";
import { withPartials } from "./partials.js";
import { unary } from "./unary.js";

const none = term.constant(0, "f32");
const oneLike = (like: Expression): Expression => term.constant(1, like.type);
const inverse = (x: Expression): Expression => term.div(oneLike(x), x);
/** 1 − x² without cancellation near ±1. */
const complementOfSquare = (x: Expression): Expression => term.mul(term.sub(1, x), term.add(1, x));

export const tan = unary({
  name: "tan",
  value: term.tan,
  derivative: { of: "output", value: (y) => term.add(1, term.mul(y, y)) },
});
export const asin = unary({
  name: "asin",
  value: term.asin,
  derivative: { of: "operand", value: (x) => inverse(term.sqrt(complementOfSquare(x))) },
});
export const acos = unary({
  name: "acos",
  value: term.acos,
  derivative: { of: "operand", value: (x) => term.neg(inverse(term.sqrt(complementOfSquare(x)))) },
});
export const atan = unary({
  name: "atan",
  value: term.atan,
  derivative: { of: "operand", value: (x) => inverse(term.add(1, term.mul(x, x))) },
});
export const sinh = unary({
  name: "sinh",
  value: term.sinh,
  derivative: { of: "operand", value: term.cosh },
});
export const cosh = unary({
  name: "cosh",
  value: term.cosh,
  derivative: { of: "operand", value: term.sinh },
});
export const asinh = unary({
  name: "asinh",
  value: term.asinh,
  derivative: { of: "operand", value: (x) => inverse(term.sqrt(term.add(term.mul(x, x), 1))) },
});
export const acosh = unary({
  name: "acosh",
  value: term.acosh,
  derivative: {
    of: "operand",
    value: (x) => inverse(term.sqrt(term.mul(term.sub(x, 1), term.add(x, 1)))),
  },
});
export const atanh = unary({
  name: "atanh",
  value: term.atanh,
  derivative: { of: "operand", value: (x) => inverse(complementOfSquare(x)) },
});

/** sin(πx) / (πx), and 1 at 0. */
export const sinc = unary({
  name: "sinc",
  value: (x) => {
    const angle = term.mul(Math.PI, x);
    return term.select(term.eq(x, 0), oneLike(x), term.div(term.sin(angle), angle));
  },
  derivative: {
    of: "operand",
    value: (x) => {
      const angle = term.mul(Math.PI, x);
      const slope = term.div(term.sub(term.cos(angle), term.div(term.sin(angle), angle)), x);
      return term.select(term.eq(x, 0), term.constant(0, x.type), slope);
    },
  },
});

const degree = Math.PI / 180;

export const deg2rad = unary({
  name: "deg2rad",
  value: (x) => term.mul(x, degree),
  derivative: { of: "operand", value: (x) => term.constant(degree, x.type) },
});
export const rad2deg = unary({
  name: "rad2deg",
  value: (x) => term.mul(x, 1 / degree),
  derivative: { of: "operand", value: (x) => term.constant(1 / degree, x.type) },
});

/** 1 / (x² + y²), and 0 at the origin, where the angle has no derivative. */
function inverseSquareDistance(y: Expression, x: Expression): Expression {
  const square = term.add(term.mul(y, y), term.mul(x, x));
  return term.select(term.eq(square, 0), term.constant(0, x.type), inverse(square));
}

/** The angle of the point (x, y); the operands are y and x. */
export const atan2 = withPartials({
  name: "atan2",
  value: ([y = none, x = none]) => term.atan2(y, x),
  partials: [
    ([y = none, x = none]) => term.mul(x, inverseSquareDistance(y, x)),
    ([y = none, x = none]) => term.neg(term.mul(y, inverseSquareDistance(y, x))),
  ],
});

/** √(a² + b²): the larger magnitude times √(1 + ratio²), which overflows only with the result. An infinite operand wins over NaN. */
function distance(x: Expression, y: Expression): Expression {
  const [a, b] = [term.abs(x), term.abs(y)];
  const [larger, smaller] = [term.max(a, b), term.min(a, b)];
  const ratio = term.div(smaller, larger);
  const scaled = term.mul(larger, term.sqrt(term.add(term.mul(ratio, ratio), 1)));
  const infinity = term.constant(Number.POSITIVE_INFINITY, x.type);
  const isInfinite = term.max(term.eq(a, infinity), term.eq(b, infinity));
  return term.select(isInfinite, infinity, term.select(term.eq(larger, 0), larger, scaled));
}

export const hypot = withPartials({
  name: "hypot",
  value: ([a = none, b = none]) => distance(a, b),
  partials: [
    ([a = none, b = none]) => term.div(a, distance(a, b)),
    ([a = none, b = none]) => term.div(b, distance(a, b)),
  ],
});
