/** Modified Bessel functions of the first kind as expressions: a power series for small arguments, and an asymptotic one for large ones. */

import { type Expression, term } from "../../ir/index.js";

/** The argument from which the asymptotic series has the digits of a type: its smallest term is about e^(−2x). */
const firstLarge = { f32: 10, f64: 20 } as const;
/** Both functions are infinite from here on, in f64 too. */
const infinite = 1500;

const typeOf = (x: Expression): "f32" | "f64" => (x.type === "f64" ? "f64" : "f32");
const digits = (x: Expression): number => (x.type === "f64" ? 2 ** -56 : 2 ** -27);

/** Coefficients by powers, until a term at `at` is too small to count. `next` is the factor of the next one. */
function coefficients(at: number, digits: number, next: (k: number) => number): readonly number[] {
  const all = [1];
  let [sum, last] = [1, 1];
  for (let k = 1; Math.abs(last) * at ** k > digits * sum || k < 3; k++) {
    last *= next(k);
    all.push(last);
    sum += last * at ** k;
  }
  return all;
}

function polynomial(x: Expression, [first = 0, ...rest]: readonly number[]): Expression {
  return rest.length === 0 ? term.constant(first, x.type) : term.add(term.mul(polynomial(x, rest), x), first);
}

/** Σ (x²/4)^k / (k! (k + order)!), without the factor x/2 of order 1. All terms are positive. */
function powerSeries(x: Expression, order: 0 | 1): Expression {
  const square = term.mul(0.25, term.mul(x, x));
  const largest = firstLarge[typeOf(x)] ** 2 / 4;
  return polynomial(
    square,
    coefficients(largest, digits(x), (k) => 1 / (k * (k + order))),
  );
}

/** eˣ / √(2πx) · Σ aₖ / xᵏ with aₖ = aₖ₋₁ · ((2k − 1)² − 4 order²) / 8k. Half of the exponential at a time, which overflows later. */
function asymptotic(x: Expression, order: 0 | 1): Expression {
  const inverse = term.div(term.constant(1, x.type), x);
  const sum = polynomial(
    inverse,
    coefficients(1 / firstLarge[typeOf(x)], digits(x), (k) => ((2 * k - 1) ** 2 - 4 * order) / (8 * k)),
  );
  const half = term.exp(term.mul(0.5, x));
  return term.mul(half, term.mul(half, term.mul(sum, term.rsqrt(term.mul(2 * Math.PI, x)))));
}

/** The function of x ≥ 0; each series gets an argument inside its range. */
function ofPositive(x: Expression, order: 0 | 1): Expression {
  const limit = firstLarge[typeOf(x)];
  const isSmall = term.lt(x, limit);
  const small = term.select(isSmall, x, 0);
  const large = term.select(isSmall, limit, term.select(term.gt(x, infinite), infinite, x));
  const series = powerSeries(small, order);
  return term.select(
    isSmall,
    order === 0 ? series : term.mul(term.mul(0.5, small), series),
    asymptotic(large, order),
  );
}

/** I₀(x) */
export function besselI0(x: Expression): Expression {
  return ofPositive(term.abs(x), 0);
}

/** I₁(x), the derivative of I₀. */
export function besselI1(x: Expression): Expression {
  const magnitude = ofPositive(term.abs(x), 1);
  return term.select(term.lt(x, 0), term.neg(magnitude), magnitude);
}
