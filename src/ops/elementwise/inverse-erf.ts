/** The inverse of the error function as an expression. */

import { type Expression, term } from "../../ir/index.js";

/** erfinv(x) / x as a polynomial of w − 2.5 up to w = 5, with w = −ln(1 − x²): a relative error of 2^−27. */
const central = [
  1.501409360450329, 0.24664027905463662, -0.004177392875203149, -0.001252726391773229,
  0.00021834938623976644, -4.9724196894547514e-6, -3.4639852676333717e-6, 4.6813134805534123e-7,
  2.3335967195708108e-8, -8.931925970244222e-9,
];
/** Above, as a polynomial of √w − 3 up to the largest f32 below 1: a relative error of 2^−22.8. */
const tailOfF32 = [
  2.832977044501243, 1.0016753470320994, 0.009433599879179176, -0.007640052044914603, 0.005776520538893599,
  -0.0036138097206789874, 0.0012602803866985316, 4.428598572143633e-5, -0.00012933680443335673,
];
/** As a polynomial of √w − 4 up to the largest f64 below 1: a relative error of 2^−18.8. */
const tailOfF64 = [
  3.839777580382146, 1.009512221321777, 0.0013237087122123753, -0.0009433336766889268, 0.00021802116668184722,
  -2.7886630738945093e-5, 0.00010576293130230591, -7.876299566045265e-5, 1.5924086555934602e-5,
];

function polynomial(x: Expression, coefficients: readonly number[]): Expression {
  const [last = 0, ...rest] = coefficients.toReversed();
  return rest.reduce<Expression>(
    (sum, coefficient) => term.add(term.mul(sum, x), coefficient),
    term.constant(last, x.type),
  );
}

function approximation(x: Expression): Expression {
  const w = term.neg(term.log(term.mul(term.sub(1, x), term.add(1, x))));
  const root = term.sqrt(w);
  const tail =
    x.type === "f32" ? polynomial(term.sub(root, 3), tailOfF32) : polynomial(term.sub(root, 4), tailOfF64);
  return term.mul(x, term.select(term.lt(w, 5), polynomial(term.sub(w, 2.5), central), tail));
}

/** A step of Newton's method for erf y = x with x ≥ 0. Near 1 it uses erfc, which keeps its digits there. */
function newtonStep(x: Expression, y: Expression): Expression {
  const error = term.select(
    term.lt(x, 0.5),
    term.sub(term.erf(y), x),
    term.sub(term.sub(1, x), term.erfc(y)),
  );
  const step = term.mul(Math.sqrt(Math.PI) / 2, term.mul(error, term.exp(term.mul(y, y))));
  return term.sub(y, step);
}

/** ±Infinity at ±1, and NaN outside. In f64 two steps of Newton's method follow the approximation. */
export function inverseErf(x: Expression): Expression {
  const a = term.abs(x);
  const start = approximation(a);
  const magnitude = x.type === "f32" ? start : newtonStep(a, newtonStep(a, start));
  const signed = term.select(term.lt(x, 0), term.neg(magnitude), magnitude);
  const infinity = term.constant(Number.POSITIVE_INFINITY, x.type);
  const atOne = term.select(term.lt(x, 0), term.neg(infinity), infinity);
  // At 0 the operand is the result, with its sign.
  return term.select(term.eq(a, 1), atOne, term.select(term.eq(x, 0), x, signed));
}
