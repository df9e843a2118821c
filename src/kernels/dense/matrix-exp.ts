/** The exponential of a matrix: a Padé approximant of degree 13 after scaling, then squaring (Higham 2005). */

import { factorLu, solveLu } from "./lu.js";
import { at, identity, type Matrix, multiply } from "./matrix.js";

/** Coefficients of the numerator, the lowest power first; those of the denominator alternate in sign. */
const pade = [
  64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
  670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
];

/** The largest 1-norm for which the approximant is exact to double precision. */
const maxNorm = 5.371920351148152;

export function exponential(a: Matrix, n: number): Matrix {
  let norm = 0;
  for (let j = 0; j < n; j++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += Math.abs(at(a, i * n + j));
    norm = Math.max(norm, sum);
  }
  if (!Number.isFinite(norm)) return new Float64Array(n * n).fill(Number.NaN);
  const squarings = norm > maxNorm ? Math.ceil(Math.log2(norm / maxNorm)) : 0;
  const scaled = a.map((value) => value * 2 ** -squarings);
  let result = approximate(scaled, n);
  for (let i = 0; i < squarings; i++) result = multiply(result, result, n, n, n);
  return result;
}

function approximate(a: Matrix, n: number): Matrix {
  const odd = new Float64Array(n * n);
  const even = new Float64Array(n * n);
  let power = identity(n);
  for (const [degree, coefficient] of pade.entries()) {
    const target = degree % 2 === 1 ? odd : even;
    for (let i = 0; i < n * n; i++) target[i] = at(target, i) + coefficient * at(power, i);
    if (degree < 13) power = multiply(power, a, n, n, n);
  }
  const numerator = even.map((value, i) => value + at(odd, i));
  const denominator = even.map((value, i) => value - at(odd, i));
  solveLu(factorLu(denominator, n, n), numerator, n, n);
  return numerator;
}
