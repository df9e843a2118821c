/** A row's delta for the backward pass: Σ outGradient · out. A few lanes share a row, and a thread has several rows in flight. */

import type { KernelSource } from "../../../../driver/index.js";
import { type Dtype, dtypes } from "../../../../ir/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { maxVectorBytes } from "../../../cost-model.js";
import { declarePair, declarePairs, pointTo, strideParameters } from "../parameters.js";
import type { TileSource } from "./tiles.js";

const threads = 128;
const rowsPerThread = 4;

export const deltaParameters = {
  outGradient: "in",
  out: "in",
  deltas: "out",
  heads: "u32",
  rows: "u32",
  valueWidth: "u32",
  tiles: "u32",
  ...strideParameters("outGradient", "out"),
} as const;

/** Constants of a generated kernel. */
export interface DeltaConfig {
  readonly outGradient: Dtype;
  readonly out: Dtype;
  /** Elements of one load. */
  readonly vector: number;
  /** Lanes of a row: a power of two. */
  readonly lanes: number;
}

/** Loads of up to 16 bytes if all rows are aligned, and as many lanes as a row has loads. */
export function chooseDeltaConfig(outGradient: TileSource, out: TileSource, valueWidth: number): DeltaConfig {
  const bytes = Math.max(dtypes[outGradient.dtype].bytes, dtypes[out.dtype].bytes);
  const vector = outGradient.isAligned && out.isAligned ? maxVectorBytes / bytes : 1;
  const lanes = Math.min(32, 2 ** Math.ceil(Math.log2(valueWidth / vector)));
  return { outGradient: outGradient.dtype, out: out.dtype, vector, lanes: Math.max(1, lanes) };
}

/** The rows of a block. */
export function deltaRows({ lanes }: DeltaConfig): number {
  return (threads / lanes) * rowsPerThread;
}

export function deltaKernel(config: DeltaConfig): KernelSource {
  const [gradient, out] = [elementTypes[config.outGradient], elementTypes[config.out]];
  const real = config.out === "f64" ? "double" : "float";
  const widened = ({ widen }: typeof out, value: string): string => (widen ? `${widen}(${value})` : value);
  const load = (name: string, type: string): string =>
    `*reinterpret_cast<const Lanes<${type}>*>(${name}Pair + (long long)row * ${name}Row + d)`;
  return cudaKernel({
    name: "attention.deltas",
    parameters: deltaParameters,
    elements: real,
    pointers: { outGradient: gradient.type, out: out.type },
    threads,
    declarations: `${preludeOf(new Set([gradient.widen, out.widen].filter((name) => name !== undefined)))}${pointTo}
static constexpr unsigned vector = ${config.vector}, lanes = ${config.lanes}, rowsPerThread = ${rowsPerThread}, rowsAtOnce = ${threads} / lanes;
template <class Element>
struct alignas(sizeof(Element) * vector) Lanes {
  Element lane[vector];
};`,
    body: `
${declarePair("blockIdx.x / tiles")}
${declarePairs(gradient.type, "outGradient")}
${declarePairs(out.type, "out")}
  const unsigned lane = threadIdx.x % lanes, firstRow = blockIdx.x % tiles * (rowsAtOnce * rowsPerThread) + threadIdx.x / lanes;
  ${real} sums[rowsPerThread] = {};
  for (unsigned d = lane * vector; d < valueWidth; d += lanes * vector) {
    Lanes<${gradient.type}> gradients[rowsPerThread] = {};
    Lanes<${out.type}> outs[rowsPerThread] = {};
#pragma unroll
    for (unsigned i = 0; i < rowsPerThread; i++) {
      const unsigned row = firstRow + i * rowsAtOnce;
      if (row >= rows) continue;
      gradients[i] = ${load("outGradient", gradient.type)};
      outs[i] = ${load("out", out.type)};
    }
#pragma unroll
    for (unsigned i = 0; i < rowsPerThread; i++) {
#pragma unroll
      for (unsigned j = 0; j < vector; j++) sums[i] += ${widened(gradient, "gradients[i].lane[j]")} * ${widened(out, "outs[i].lane[j]")};
    }
  }
#pragma unroll
  for (unsigned i = 0; i < rowsPerThread; i++) {
#pragma unroll
    for (unsigned step = lanes / 2; step > 0; step /= 2) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], step);
    const unsigned row = firstRow + i * rowsAtOnce;
    if (lane == 0 && row < rows) deltas[pair * rows + row] = sums[i];
  }`,
  });
}
