/** A row's delta for the backward pass: Σ outGradient · out, one warp per row. */

import type { KernelSource } from "../../../../driver/index.js";
import type { Dtype } from "../../../../ir/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { declarePair, declarePairs, pointTo, strideParameters } from "../parameters.js";

const threads = 128;
const rowsPerBlock = threads / 32;

export const deltaParameters = {
  outGradient: "in",
  out: "in",
  deltas: "out",
  heads: "u32",
  rows: "u32",
  valueWidth: "u32",
  pairs: "u32",
  ...strideParameters("outGradient", "out"),
} as const;

export function deltaBlocks(pairs: number, rows: number): number {
  return Math.ceil((pairs * rows) / rowsPerBlock);
}

export function deltaKernel(dtypes: { readonly outGradient: Dtype; readonly out: Dtype }): KernelSource {
  const [gradient, out] = [elementTypes[dtypes.outGradient], elementTypes[dtypes.out]];
  const widened = ({ widen }: typeof out, value: string): string => (widen ? `${widen}(${value})` : value);
  return cudaKernel({
    name: "attention.deltas",
    parameters: deltaParameters,
    elements: "float",
    pointers: { outGradient: gradient.type, out: out.type },
    threads,
    declarations: `${preludeOf(new Set([gradient.widen, out.widen].filter((name) => name !== undefined)))}${pointTo}`,
    body: `
  const unsigned long long number = blockIdx.x * ${rowsPerBlock}ull + threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32, row = (unsigned)(number % rows);
  if (number >= (unsigned long long)pairs * rows) return;
${declarePair("(unsigned)(number / rows)")}
${declarePairs(gradient.type, "outGradient")}
${declarePairs(out.type, "out")}
  float sum = 0;
  for (unsigned d = lane; d < valueWidth; d += 32) {
    sum += ${widened(gradient, "outGradientPair[(long long)row * outGradientRow + d]")} * ${widened(out, "outPair[(long long)row * outRow + d]")};
  }
  for (unsigned step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) deltas[pair * rows + row] = sum;`,
  });
}
