/** The elementary functions that a kernel's expressions call: SIMD functions for f32, and those of doubles for f64 and the rest. */

import {
  type MathFunction,
  mathFunctions,
  type WasmFunction,
  type WasmImport,
} from "../../../driver/index.js";
import type { Expression } from "../../../ir/index.js";
import { subexpressionsOf } from "../../../ir/index.js";
import { type VectorMathName, vectorMath } from "./math/index.js";

/** The functions and imports that a module needs for these values. SIMD functions are inlined: only their callees are listed. */
export function calledBy(values: readonly Expression[]): {
  functions: WasmFunction[];
  imports: WasmImport[];
} {
  const functions = new Set<WasmFunction>();
  const imports = new Set<MathFunction>();
  const visit = (expression: Expression): void => {
    const op = expression.kind === "unary" || expression.kind === "binary" ? expression.op : "";
    const isSimd = expression.type === "f32" && Object.hasOwn(vectorMath, op);
    if (isSimd) for (const callee of vectorMath[op as VectorMathName].needs) functions.add(callee);
    else if (Object.hasOwn(mathFunctions, op)) imports.add(op as MathFunction);
  };
  for (const value of values) subexpressionsOf(value).forEach(visit);
  return { functions: [...functions], imports: [...imports].map(importOf) };
}

function importOf(name: MathFunction): WasmImport {
  const parameters = Array.from({ length: mathFunctions[name].length }, () => "f64" as const);
  return { name, parameters, results: ["f64"] };
}
