/** Turns a kernel's WebAssembly into a function, and says what is wrong where it can't. */

import { HoldfastError } from "../../errors/index.js";
import type { KernelSource } from "../driver.js";
import { type KernelFunction, maximumArguments } from "./launch-protocol.js";
import { mathFunctions } from "./math-functions.js";

export interface CompiledKernel {
  readonly module: WebAssembly.Module;
  readonly run: KernelFunction;
}

export function compileKernel(
  { name, parameters, wasm }: KernelSource,
  memory: WebAssembly.Memory,
): CompiledKernel {
  if (!wasm) {
    const message = `Kernel "${name}" has no WebAssembly form, and the CPU driver loads no other. Give its source a \`wasm\` module.`;
    throw new HoldfastError("UNSUPPORTED", message, { numbers: { kernel: name } });
  }
  if (parameters.length > maximumArguments) {
    throw failed(name, `it has ${parameters.length} parameters, and ${maximumArguments} is the most.`);
  }
  let module: WebAssembly.Module;
  let run: unknown;
  try {
    module = new WebAssembly.Module(wasm);
    run = new WebAssembly.Instance(module, { env: { memory }, math: mathFunctions }).exports[name];
  } catch (cause) {
    throw failed(name, cause instanceof Error ? cause.message : String(cause), cause);
  }
  if (typeof run !== "function") throw failed(name, "its module exports no function of that name.");
  if (run.length !== parameters.length + 2) {
    throw failed(
      name,
      `its function takes ${run.length} arguments; first block, end block and ${parameters.length} parameters make ${parameters.length + 2}.`,
    );
  }
  return { module, run: run as KernelFunction };
}

function failed(name: string, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError("KERNEL_FAILED", `Kernel "${name}" does not load: ${why}`, {
    numbers: { kernel: name },
    cause,
  });
}
