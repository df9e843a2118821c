/** A kernel's WebAssembly module: how its parameters become those of a function, as `KernelSource` has it. */

import type { KernelSource, Parameter } from "../driver.js";
import { type Code, encodeModule, type Local, type WasmFunction, type WasmImport } from "./wasm.js";
import type { ValueType } from "./wasm-opcodes.js";

/** Memory arguments are addresses. */
const valueTypeOf = {
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
  /** Runs the blocks from the function's parameter 0 up to 1; `argument` gives the kernel's own by their place. */
  readonly body: (code: Code, argument: (index: number) => Local) => void;
  /** What the body calls: functions of the module, and those that the engine brings. */
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
    parameters: ["i32", "i32", ...parameters.map((parameter) => valueTypeOf[parameter])],
    results: [],
    body: (code) => body(code, (index) => code.parameter(index + 2)),
  };
  return { name, parameters, wasm: encodeModule([...functions, main], imports) };
}
