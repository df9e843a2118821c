/** The elementary functions of WebAssembly kernels by name, and the functions that a module needs to call them. */

import type { WasmFunction } from "../../../../driver/index.js";
import { erf } from "./error-function.js";
import { exp } from "./exp.js";
import { expm1, softplus } from "./expm1-softplus.js";
import { log, log1p } from "./log.js";
import { pow, rsqrt } from "./pow.js";
import { sigmoid, tanh } from "./sigmoid-tanh.js";
import { roundTf32 } from "./tf32.js";
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
  | "rsqrt"
  | "roundTf32";

/**
 * Functions of four floats (v128 in, v128 out; `pow` takes base and power), to be called by name from a kernel of the same module, or
 * inlined. They use neither fast-math nor relaxed instructions, so that a result has the same bits on every machine and in every lane.
 * Only the bits of a NaN may differ, which WebAssembly leaves open.
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
  roundTf32,
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
