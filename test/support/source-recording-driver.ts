/**
 * A GPU that only records every kernel's code, in the order of loading. Its memory is the CPU's; a launch
 * writes zeros to its outputs. So a whole model can be run for its kernels' sources, on any machine.
 */

import {
  type Driver,
  type Kernel,
  type KernelSource,
  type Launch,
  openCpuDriver,
  type Stream,
} from "holdfast/internals";
import { type DeviceInfo, interceptCalls } from "../../src/driver/index.js";

export interface PrintingDriver {
  readonly driver: Driver;
  /** The loaded kernels, by code; GEMMs of a library have none, and are not here. */
  readonly sources: ReadonlyMap<string, KernelSource>;
}

/** `facts`: further properties of the GPU. */
export function openPrintingDriver(facts: Partial<DeviceInfo> = {}): PrintingDriver {
  const cpu = openCpuDriver({ threads: 1 });
  const sources = new Map<string, KernelSource>();
  let loaded = 0;

  function load(source: KernelSource): Kernel {
    const { name, parameters, cuda, gemm } = source;
    if (!cuda && !gemm) throw new Error(`Kernel "${name}" has no CUDA code.`);
    if (cuda && !sources.has(cuda.code)) sources.set(cuda.code, source);
    loaded += 1;
    return { type: "kernel", id: loaded, name, parameters: [...parameters] };
  }

  function launch(stream: Stream, { kernel, arguments: args }: Launch): void {
    for (const [index, parameter] of kernel.parameters.entries()) {
      const value = args[index];
      if (parameter !== "in" && typeof value === "object") cpu.fill(stream, value, 0);
    }
  }

  const driver = interceptCalls(cpu, (call, args, proceed) => {
    switch (call) {
      case "describe":
        return {
          ...(proceed() as DeviceInfo),
          ...{ kind: "cuda", name: "Printer", computeCapability: "9.0", ...facts },
        };
      case "loadKernel":
        return load(args[0] as KernelSource);
      case "unloadKernel":
        return undefined;
      case "launch":
        return launch(args[0] as Stream, args[1] as Launch);
      default:
        return proceed();
    }
  });
  return { driver, sources };
}
