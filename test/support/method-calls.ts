/** The cases of test/oracle/elementwise.json, shapes.json and selections.json: methods of tensors, and functions. */

import assert from "node:assert/strict";
import * as holdfast from "holdfast";
import type { Dtype } from "../../src/ir/index.js";
import type { Tensor } from "../../src/tensor/index.js";
import { readRepositoryFile } from "./repository.js";

export type MethodNumeral = number | "NaN" | "Infinity" | "-Infinity" | "-0";
export interface MethodOperand {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly values: readonly MethodNumeral[];
}
export interface MethodCase {
  readonly name: string;
  readonly method?: string;
  readonly function?: string;
  readonly inputs: readonly MethodOperand[];
  readonly args: readonly unknown[];
  readonly outputs: readonly MethodOperand[];
  readonly grads?: readonly (MethodOperand | null)[];
}
type AnyFunction = (this: unknown, ...args: readonly unknown[]) => unknown;

export const methodFiles = ["elementwise", "shapes", "selections"] as const;

export function methodCases(file: (typeof methodFiles)[number]): readonly MethodCase[] {
  return JSON.parse(readRepositoryFile(`test/oracle/${file}.json`)) as readonly MethodCase[];
}

export function callMethod(oracleCase: MethodCase, inputs: readonly Tensor[]): readonly Tensor[] {
  const args = oracleCase.args.map((arg) => resolve(arg, inputs));
  const [self] = inputs;
  const name = oracleCase.method ?? oracleCase.function ?? "";
  const owner = (oracleCase.method ? self : holdfast) as unknown as Readonly<Record<string, AnyFunction>>;
  const result = (owner[name] ?? assert.fail(`there is no ${name}`)).call(self, ...args);
  if (Array.isArray(result)) return result as readonly Tensor[];
  return result instanceof holdfast.Tensor ? [result] : (Object.values(result as object) as Tensor[]);
}

/** "$n" is input n, also inside of lists. */
function resolve(arg: unknown, inputs: readonly Tensor[]): unknown {
  if (Array.isArray(arg)) return arg.map((item) => resolve(item, inputs));
  if (typeof arg === "object" && arg !== null) {
    return Object.fromEntries(Object.entries(arg).map(([key, item]) => [key, resolve(item, inputs)]));
  }
  const index = typeof arg === "string" && /^\$(\d+)$/.exec(arg)?.[1];
  return index ? (inputs[Number(index)] ?? assert.fail(`no input ${index}`)) : arg;
}
