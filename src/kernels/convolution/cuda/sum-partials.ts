/** The second launch of a split sum: adds the partial sums of all splits in their order, then the bias. */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { type ConvolutionDtype, declareElement, typeOf } from "./element.js";

export const sumThreads = 256;

export function sumParameters(
  access: "out" | "partial-out",
  hasBias: boolean,
): Readonly<Record<string, Parameter>> {
  return {
    ...{ partials: "in", out: access },
    ...(hasBias && { bias: "in", perChannel: "u32", channels: "u32" }),
    ...{ count: "u32", splits: "u32" },
  };
}

export function sumPartialsKernel(
  dtype: ConvolutionDtype,
  access: "out" | "partial-out",
  hasBias: boolean,
): KernelSource {
  return cudaKernel({
    name: `convolution.sum.${dtype}`,
    parameters: sumParameters(access, hasBias),
    elements: typeOf(dtype),
    pointers: { partials: "float" },
    threads: sumThreads,
    declarations: declareElement(dtype),
    body: `
  const unsigned index = blockIdx.x * ${sumThreads} + threadIdx.x;
  if (index >= count) return;
  float sum = partials[index];
  for (unsigned split = 1; split < splits; split++) sum += partials[(unsigned long long)split * count + index];
  out[index] = Conversion::narrow(sum${hasBias ? " + Conversion::widen(bias[index / perChannel % channels])" : ""});`,
  });
}
