/**
 * Elementary functions of doubles, imported by float64 kernels because WebAssembly has none. JavaScript's are accurate.
 * float64 is for tests and references, so a call per element is acceptable. Float32 kernels call `lgamma` and `fmod` too.
 */

import { erf64, erfc64 } from "./erf64.js";
import { lgamma64 } from "./lgamma64.js";

/** Math.pow with the results of C99: 1^y and (−1)^±Infinity are 1, where JavaScript returns NaN. */
function pow(base: number, power: number): number {
  if (base === 1 || (base === -1 && Math.abs(power) === Number.POSITIVE_INFINITY)) return 1;
  return base ** power;
}

export const mathFunctions = {
  exp: Math.exp,
  exp2: (x: number): number => 2 ** x,
  expm1: Math.expm1,
  log: Math.log,
  log1p: Math.log1p,
  log2: Math.log2,
  log10: Math.log10,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  asin: Math.asin,
  acos: Math.acos,
  atan: Math.atan,
  sinh: Math.sinh,
  cosh: Math.cosh,
  tanh: Math.tanh,
  asinh: Math.asinh,
  acosh: Math.acosh,
  atanh: Math.atanh,
  erf: erf64,
  erfc: erfc64,
  lgamma: lgamma64,
  sigmoid: (x: number): number => 1 / (1 + Math.exp(-x)),
  softplus: (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  rsqrt: (x: number): number => 1 / Math.sqrt(x),
  pow,
  atan2: Math.atan2,
  fmod: (x: number, y: number): number => x % y,
} as const satisfies Record<string, ((x: number) => number) | ((x: number, y: number) => number)>;

export type MathFunction = keyof typeof mathFunctions;
