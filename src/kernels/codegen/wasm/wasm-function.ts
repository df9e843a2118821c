/** WebAssembly functions and kernels with named parameters: the order of the record's keys is the order of the parameters. */

import {
  type Code,
  encodeKernel,
  type KernelSource,
  type Local,
  type Parameter,
  type ValueType,
  type WasmFunction,
  type WasmImport,
} from "../../../driver/index.js";

type Types<Name extends string, Type> = Readonly<Record<Name, Type>>;
type Body<Name extends string> = (code: Code, parameters: Readonly<Record<Name, Local>>) => void;

/** A function of a module, with no result. */
export function wasmFunction<Name extends string>(
  name: string,
  types: Types<Name, ValueType>,
  body: Body<Name>,
): WasmFunction {
  const names = Object.keys(types) as Name[];
  return {
    name,
    parameters: names.map((parameter) => types[parameter]),
    results: [],
    body: (code) =>
      body(
        code,
        named(names, (_, index) => code.parameter(index)),
      ),
  };
}

/** The range of blocks that one call of a kernel runs. */
type Blocks = "firstBlock" | "endBlock";

/** A kernel, the functions of its module, and its imports from the engine. */
export function wasmKernel<Name extends string>(
  name: string,
  parameters: Types<Name, Parameter>,
  functions: readonly WasmFunction[],
  body: Body<Name | Blocks>,
  imports: readonly WasmImport[] = [],
): KernelSource {
  const names = Object.keys(parameters) as Name[];
  return encodeKernel({
    name,
    parameters: names.map((parameter) => parameters[parameter]),
    functions,
    imports,
    body: (code, argument) =>
      body(code, {
        ...named(names, (_, index) => argument(index)),
        ...named(["firstBlock", "endBlock"] as const, (_, index) => code.parameter(index)),
      }),
  });
}

/** New locals of one type, by name. */
export function localsOf<Name extends string>(
  code: Code,
  type: ValueType,
  ...names: readonly Name[]
): Readonly<Record<Name, Local>> {
  return named(names, () => code.local(type));
}

function named<Name extends string, Value>(
  names: readonly Name[],
  valueFor: (name: Name, index: number) => Value,
): Record<Name, Value> {
  return Object.fromEntries(names.map((name, index) => [name, valueFor(name, index)])) as Record<Name, Value>;
}
