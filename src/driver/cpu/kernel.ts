/** Instantiates a kernel's WebAssembly, with an error that explains a failure. */

import { HoldfastError } from "../../errors/index.js";
import type { KernelSource } from "../driver.js";
import { type KernelFunction, maxArguments } from "./launch-protocol.js";
import { mathFunctions } from "./math-functions.js";

export interface CompiledKernel {
  readonly module: WebAssembly.Module;
  readonly run: KernelFunction;
}

/** By a source's code: a device that loads the kernels of an earlier one does not compile them again. */
const modules = new WeakMap<object, WebAssembly.Module>();

function moduleOf(wasm: NonNullable<KernelSource["wasm"]>): WebAssembly.Module {
  const compiled = modules.get(wasm);
  if (compiled) return compiled;
  const module = new WebAssembly.Module(wasm);
  modules.set(wasm, module);
  return module;
}

export function compileKernel(
  { name, parameters, wasm }: KernelSource,
  memory: WebAssembly.Memory,
): CompiledKernel {
  if (!wasm) {
    const message = `Kernel "${name}" has no WebAssembly code, which the CPU driver needs. Add a \`wasm\` module to its source.`;
    throw new HoldfastError("UNSUPPORTED", message, { numbers: { kernel: name } });
  }
  if (parameters.length > maxArguments) {
    throw failed(name, `it has ${parameters.length} parameters; the maximum is ${maxArguments}.`);
  }
  let module: WebAssembly.Module;
  let run: unknown;
  try {
    module = moduleOf(wasm);
    run = new WebAssembly.Instance(module, { env: { memory }, math: mathFunctions }).exports[name];
  } catch (cause) {
    throw failed(name, cause instanceof Error ? cause.message : String(cause), cause);
  }
  if (typeof run !== "function") throw failed(name, "its module exports no function of that name.");
  if (run.length !== parameters.length + 2) {
    throw failed(
      name,
      `its function takes ${run.length} arguments; it must take ${parameters.length + 2}: first block, end block and ${parameters.length} parameters.`,
    );
  }
  return { module, run: run as KernelFunction };
}

function failed(name: string, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError("KERNEL_FAILED", `Kernel "${name}" cannot be loaded: ${why}`, {
    numbers: { kernel: name },
    cause,
  });
}
