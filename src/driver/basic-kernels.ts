/**
 * The basic kernels, with WebAssembly and CUDA code for each. The runtime and its tests use them without the op table.
 */

import { basicKernels as wasmKernels } from "./cpu/index.js";
import { basicKernelCode } from "./cuda/index.js";
import type { CudaCode, KernelSource } from "./driver.js";

function withCode(source: KernelSource, cuda: CudaCode): KernelSource {
  return { ...source, cuda };
}

/** Five kernels over float32 arrays, in blocks of 4096 elements. */
export const basicKernels = {
  fill: withCode(wasmKernels.fill, basicKernelCode.fill),
  copy: withCode(wasmKernels.copy, basicKernelCode.copy),
  add: withCode(wasmKernels.add, basicKernelCode.add),
  scale: withCode(wasmKernels.scale, basicKernelCode.scale),
  sum: withCode(wasmKernels.sum, basicKernelCode.sum),
} as const satisfies Record<string, KernelSource>;
