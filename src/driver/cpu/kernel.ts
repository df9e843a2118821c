/** Instantiates a kernel's WebAssembly, with an error that explains a failure. */

import { HoldfastError } from "../../errors/index.js";
import { isMemory, type KernelSource } from "../driver.js";
import { type KernelFunction, maxArguments } from "./launch-protocol.js";
import { mathFunctions } from "./math-functions.js";
import { widenAddresses } from "./widen-addresses.js";

export interface CompiledKernel {
  readonly module: WebAssembly.Module;
  readonly run: KernelFunction;
}

type ModuleCache = WeakMap<object, WebAssembly.Module>;

/** By a source's code: a device that loads the kernels of an earlier one does not compile them again. For 32-bit and 64-bit memory. */
const modules: { readonly narrow: ModuleCache; readonly wide: ModuleCache } = {
  narrow: new WeakMap(),
  wide: new WeakMap(),
};

function moduleOf(
  { name, parameters, wasm }: KernelSource & { readonly wasm: Uint8Array<ArrayBuffer> },
  isWide: boolean,
): WebAssembly.Module {
  const cache = isWide ? modules.wide : modules.narrow;
  const compiled = cache.get(wasm);
  if (compiled) return compiled;
  // After the two block numbers.
  const addresses = parameters.flatMap((parameter, index) => (isMemory(parameter) ? [index + 2] : []));
  const module = new WebAssembly.Module(isWide ? widenAddresses(wasm, { name, addresses }) : wasm);
  cache.set(wasm, module);
  return module;
}

export function compileKernel(
  source: KernelSource,
  memory: WebAssembly.Memory,
  hasWideAddresses = false,
): CompiledKernel {
  const { name, parameters, wasm } = source;
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
    module = moduleOf({ ...source, wasm }, hasWideAddresses);
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
