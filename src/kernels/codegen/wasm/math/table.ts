/** The elementary functions of WebAssembly kernels by name, and what a module must hold to call them. */

import type { WasmFunction } from "../../../../driver/index.js";
import { erf } from "./error-function.js";
import { exp } from "./exp.js";
import { expm1, softplus } from "./expm1-softplus.js";
import { log, log1p } from "./log.js";
import { pow, rsqrt } from "./pow.js";
import { sigmoid, tanh } from "./sigmoid-tanh.js";
import { cos, sin } from "./trigonometric.js";
import type { VectorFunction } from "./vector-function.js";

export type VectorMathName =
  | "exp"
  | "expm1"
  | "log"
  | "log1p"
  | "tanh"
  | "sigmoid"
  | "softplus"
  | "sin"
  | "cos"
  | "erf"
  | "pow"
  | "rsqrt";

/**
 * Functions of four floats (v128 in, v128 out; `pow` takes base and power), to call by name from a kernel in the same
 * module or to write in place. There is no fast-math and no relaxed instruction in them, so a result has the same bits
 * on every machine and in every lane, but for those of a NaN, which WebAssembly leaves open.
 */
export const vectorMath: Readonly<Record<VectorMathName, VectorFunction>> = {
  exp,
  expm1,
  log,
  log1p,
  tanh,
  sigmoid,
  softplus,
  sin,
  cos,
  erf,
  pow,
  rsqrt,
};

/**
 * The named functions and what they call, each once, callees first: what a module holds besides its kernels.
 *
 * ```js
 * withNeeds(["cos", "sin"]).map((fn) => fn.name); // → ["reduceHuge", "cos", "sin"]
 * ```
 */
export function withNeeds(names: Iterable<VectorMathName>): WasmFunction[] {
  const found = new Set<WasmFunction>();
  for (const name of names) {
    for (const need of vectorMath[name].needs) found.add(need);
    found.add(vectorMath[name]);
  }
  return [...found];
}
