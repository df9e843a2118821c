/** The derivatives of ln Γ as expressions. Eight steps of the recurrence come before an asymptotic series. */

import { type Expression, term } from "../../ir/index.js";

const steps = 8;
/** −B₂ₖ / 2k of ψ(x) = ln x − 1/2x − Σ B₂ₖ / (2k x²ᵏ). */
const digammaTail = [-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32_760, -1 / 12, 3617 / 8160];
/** B₂ₖ of ψ′(x) = 1/x + 1/2x² + Σ B₂ₖ / x²ᵏ⁺¹. */
const trigammaTail = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510];

function polynomial(x: Expression, coefficients: readonly number[]): Expression {
  const [last = 0, ...rest] = coefficients.toReversed();
  return rest.reduce<Expression>(
    (sum, coefficient) => term.add(term.mul(sum, x), coefficient),
    term.constant(last, x.type),
  );
}

const inverse = (x: Expression): Expression => term.div(term.constant(1, x.type), x);

/** The smaller terms are added first. */
function recurrence(x: Expression, termAt: (shifted: Expression) => Expression): Expression {
  let sum = termAt(term.add(x, steps - 1));
  for (let step = steps - 2; step >= 0; step--)
    sum = term.add(sum, termAt(step === 0 ? x : term.add(x, step)));
  return sum;
}

/** πr with r = x − round(x), which is exact: sin and tan of πx up to a sign. */
function angleOf(x: Expression): Expression {
  return term.mul(Math.PI, term.sub(x, term.round(x)));
}

/** ψ(x). ∓Infinity at ±0, and NaN at negative whole numbers. */
export function digammaOf(x: Expression): Expression {
  const isLeft = term.lt(x, 0);
  const right = term.select(isLeft, term.sub(1, x), x);
  const shifted = term.add(right, steps);
  const inverseSquare = inverse(term.mul(shifted, shifted));
  const tail = term.sub(
    term.mul(inverseSquare, polynomial(inverseSquare, digammaTail)),
    term.div(0.5, shifted),
  );
  const value = term.sub(term.add(term.log(shifted), tail), recurrence(right, inverse));
  const angle = angleOf(x);
  const reflected = term.sub(value, term.div(Math.PI, term.tan(angle)));
  const isPole = term.min(isLeft, term.eq(angle, 0));
  return term.select(isPole, term.constant(Number.NaN, x.type), term.select(isLeft, reflected, value));
}

/** ψ′(x). Infinity at 0 and at negative whole numbers. */
export function trigammaOf(x: Expression): Expression {
  const isLeft = term.lt(x, 0);
  const right = term.select(isLeft, term.sub(1, x), x);
  const shifted = inverse(term.add(right, steps));
  const square = term.mul(shifted, shifted);
  const tail = term.mul(shifted, term.mul(square, polynomial(square, trigammaTail)));
  const series = term.add(term.add(shifted, term.mul(0.5, square)), tail);
  const squareOfInverse = (y: Expression): Expression => inverse(term.mul(y, y));
  const value = term.add(series, recurrence(right, squareOfInverse));
  const sine = term.sin(angleOf(x));
  const reflected = term.sub(term.div(Math.PI ** 2, term.mul(sine, sine)), value);
  return term.select(isLeft, reflected, value);
}
