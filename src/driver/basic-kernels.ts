/** The basic kernels in every form that a driver loads: below the op table, the runtime and its tests compute with them. */

import { basicKernels as inWebAssembly } from "./cpu/index.js";
import { basicKernelCode } from "./cuda/index.js";
import type { CudaCode, KernelSource } from "./driver.js";

function withCode(source: KernelSource, cuda: CudaCode): KernelSource {
  return { ...source, cuda };
}

/** Five kernels over float32 arrays, in blocks of 4096 elements. */
export const basicKernels = {
  fill: withCode(inWebAssembly.fill, basicKernelCode.fill),
  copy: withCode(inWebAssembly.copy, basicKernelCode.copy),
  add: withCode(inWebAssembly.add, basicKernelCode.add),
  scale: withCode(inWebAssembly.scale, basicKernelCode.scale),
  sum: withCode(inWebAssembly.sum, basicKernelCode.sum),
} as const satisfies Record<string, KernelSource>;
