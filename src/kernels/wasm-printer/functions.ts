/** Which elementary functions a kernel's expressions call: our own for vectors of f32, the engine's for doubles. */

import { type MathFunction, mathFunctions, type WasmFunction, type WasmImport } from "../../driver/index.js";
import type { Expression } from "../ir.js";
import { type VectorMathName, vectorMath } from "../wasm-math/index.js";
import { operandsOf } from "./expressions.js";

export function functionsOf(values: readonly Expression[]): {
  vector: VectorMathName[];
  double: MathFunction[];
} {
  const vector = new Set<VectorMathName>();
  const double = new Set<MathFunction>();
  const visit = (one: Expression): void => {
    const op = one.kind === "unary" || one.kind === "binary" ? one.op : "";
    if (one.type === "f32" && Object.hasOwn(vectorMath, op)) vector.add(op as VectorMathName);
    if (one.type === "f64" && Object.hasOwn(mathFunctions, op)) double.add(op as MathFunction);
    for (const operand of operandsOf(one)) visit(operand);
  };
  for (const value of values) visit(value);
  return { vector: [...vector], double: [...double] };
}

export function importOf(name: MathFunction): WasmImport {
  const parameters = Array.from({ length: mathFunctions[name].length }, () => "f64" as const);
  return { name, parameters, results: ["f64"] };
}

/** What the functions written in place call: the module must hold these. */
export function needsOf(names: readonly VectorMathName[]): WasmFunction[] {
  return [...new Set(names.flatMap((name) => vectorMath[name].needs))];
}
