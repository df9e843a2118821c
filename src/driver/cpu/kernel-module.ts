/**
 * Builds a kernel's WebAssembly module: maps the kernel's parameters to function parameters, as `KernelSource`
 * specifies.
 */

import type { KernelSource, Parameter } from "../driver.js";
import { type Code, encodeModule, type Local, type WasmFunction, type WasmImport } from "./wasm.js";
import type { ValueType } from "./wasm-opcodes.js";

/** Memory arguments are addresses. */
const valueTypes = {
  in: "i32",
  out: "i32",
  "partial-out": "i32",
  inout: "i32",
  i32: "i32",
  u32: "i32",
  f32: "f32",
  f64: "f64",
} as const satisfies Record<Parameter, ValueType>;

export interface KernelModule {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  /**
   * Emits the kernel for blocks [parameter 0, parameter 1). `argument(i)` is the local of the kernel's i-th parameter.
   */
  readonly body: (code: Code, argument: (index: number) => Local) => void;
  /** Helper functions of the module, and functions imported from the host. */
  readonly functions?: readonly WasmFunction[];
  readonly imports?: readonly WasmImport[];
}

export function encodeKernel({
  name,
  parameters,
  body,
  functions = [],
  imports = [],
}: KernelModule): KernelSource {
  const main: WasmFunction = {
    name,
    parameters: ["i32", "i32", ...parameters.map((parameter) => valueTypes[parameter])],
    results: [],
    body: (code) => body(code, (index) => code.parameter(index + 2)),
  };
  return { name, parameters, wasm: encodeModule([...functions, main], imports) };
}
