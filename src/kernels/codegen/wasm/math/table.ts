/** The elementary functions of WebAssembly kernels by name, and the functions that a module needs to call them. */

import type { WasmFunction } from "../../../../driver/index.js";
import { erf, erfc } from "./error-function.js";
import { exp, exp2 } from "./exp.js";
import { expm1, softplus } from "./expm1-softplus.js";
import { acosh, asinh, atanh, cosh, sinh } from "./hyperbolic.js";
import { acos, asin, atan, atan2 } from "./inverse-trigonometric.js";
import { log, log1p, log2, log10 } from "./log.js";
import { pow, rsqrt } from "./pow.js";
import { roundBf16, roundF16, roundTf32 } from "./roundings.js";
import { sigmoid, tanh } from "./sigmoid-tanh.js";
import { cos, sin, tan } from "./trigonometric.js";
import type { VectorFunction } from "./vector-function.js";

export type VectorMathName =
  | "exp"
  | "exp2"
  | "expm1"
  | "log"
  | "log1p"
  | "log2"
  | "log10"
  | "tanh"
  | "sigmoid"
  | "softplus"
  | "sin"
  | "cos"
  | "tan"
  | "asin"
  | "acos"
  | "atan"
  | "atan2"
  | "sinh"
  | "cosh"
  | "asinh"
  | "acosh"
  | "atanh"
  | "erf"
  | "erfc"
  | "pow"
  | "rsqrt"
  | "roundTf32"
  | "roundBf16"
  | "roundF16";

/**
 * Functions of four floats (v128 in, v128 out; `pow` takes base and power, `atan2` y and x), to be called by name from a kernel of the same module, or
 * inlined. They use neither fast-math nor relaxed instructions, so that a result has the same bits on every machine and in every lane.
 * Only the bits of a NaN may differ, which WebAssembly leaves open.
 */
export const vectorMath: Readonly<Record<VectorMathName, VectorFunction>> = {
  exp,
  exp2,
  expm1,
  log,
  log1p,
  log2,
  log10,
  tanh,
  sigmoid,
  softplus,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  atan2,
  sinh,
  cosh,
  asinh,
  acosh,
  atanh,
  erf,
  erfc,
  pow,
  rsqrt,
  roundTf32,
  roundBf16,
  roundF16,
};

/**
 * The named functions and their callees, each once, callees first. A module contains them besides its kernels.
 *
 * ```js
 * withNeeds(["cos", "sin"]).map((fn) => fn.name); // → ["reduceHuge", "cos", "sin"]
 * ```
 */
export function withNeeds(names: Iterable<VectorMathName>): WasmFunction[] {
  const functions = new Set<WasmFunction>();
  for (const name of names) {
    for (const need of vectorMath[name].needs) functions.add(need);
    functions.add(vectorMath[name]);
  }
  return [...functions];
}
