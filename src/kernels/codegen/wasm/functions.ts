/** Which elementary functions a kernel's expressions call: our own for vectors of f32, the engine's for doubles. */

import {
  type MathFunction,
  mathFunctions,
  type WasmFunction,
  type WasmImport,
} from "../../../driver/index.js";
import type { Expression } from "../../../ir/index.js";
import { subexpressionsOf } from "../../../ir/index.js";
import { type VectorMathName, vectorMath } from "./math/index.js";

/** What a module must hold and import for these values. Functions of vectors are written in place: only what they call counts. */
export function calledBy(values: readonly Expression[]): {
  functions: WasmFunction[];
  imports: WasmImport[];
} {
  const functions = new Set<WasmFunction>();
  const imports = new Set<MathFunction>();
  const visit = (one: Expression): void => {
    const op = one.kind === "unary" || one.kind === "binary" ? one.op : "";
    if (one.type === "f32" && Object.hasOwn(vectorMath, op)) {
      for (const need of vectorMath[op as VectorMathName].needs) functions.add(need);
    }
    if (one.type === "f64" && Object.hasOwn(mathFunctions, op)) imports.add(op as MathFunction);
  };
  for (const value of values) subexpressionsOf(value).forEach(visit);
  return { functions: [...functions], imports: [...imports].map(importOf) };
}

function importOf(name: MathFunction): WasmImport {
  const parameters = Array.from({ length: mathFunctions[name].length }, () => "f64" as const);
  return { name, parameters, results: ["f64"] };
}
