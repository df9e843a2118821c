/**
 * Elementary functions of doubles, imported by float64 kernels because WebAssembly has none. JavaScript's are accurate.
 * float64 is for tests and references, so a call per element is acceptable.
 */

import { erf64 } from "./erf64.js";

/** Math.pow with the results of C99: 1^y and (−1)^±Infinity are 1, where JavaScript returns NaN. */
function pow(base: number, power: number): number {
  if (base === 1 || (base === -1 && Math.abs(power) === Number.POSITIVE_INFINITY)) return 1;
  return base ** power;
}

export const mathFunctions = {
  exp: Math.exp,
  expm1: Math.expm1,
  log: Math.log,
  log1p: Math.log1p,
  sin: Math.sin,
  cos: Math.cos,
  tanh: Math.tanh,
  erf: erf64,
  sigmoid: (x: number): number => 1 / (1 + Math.exp(-x)),
  softplus: (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x))),
  rsqrt: (x: number): number => 1 / Math.sqrt(x),
  pow,
} as const satisfies Record<string, ((x: number) => number) | ((x: number, y: number) => number)>;

export type MathFunction = keyof typeof mathFunctions;
