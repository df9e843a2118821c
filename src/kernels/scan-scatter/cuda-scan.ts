/** Sums along an axis on CUDA: a thread walks down a column, and adds in the order in which the CPU does. */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand } from "../../runtime/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { argumentsInOrder } from "../codegen/wasm/wasm-function.js";
import { cachedSource } from "../source-cache.js";
import { blocksForColumns, columnOfThread, nothing, threads } from "./cuda-columns.js";
import type { WalkDtype } from "./element.js";
import type { Scan } from "./scan.js";

/** Elements that are asked for before the first of them is needed. */
const ahead = 8;

const scanParameters = {
  input: "in",
  output: "out",
  outer: "u32",
  length: "u32",
  inner: "u32",
  isReversed: "u32",
} as const;

export function lowerScanOnCuda(scan: Scan, op: string): LaunchCommand {
  const { dtype, outer, length, inner, input, output, isReversed = false } = scan;
  return {
    ...{ kind: "launch", op },
    source: cudaScanKernel(dtype),
    blocks: blocksForColumns(outer, inner),
    arguments: argumentsInOrder(scanParameters, {
      input,
      output,
      outer,
      length,
      inner,
      isReversed: isReversed ? 1 : 0,
    }),
  };
}

export function cudaScanKernel(dtype: WalkDtype): KernelSource {
  return cachedSource(`cuda scan ${dtype}`, () => printScan(dtype));
}

function printScan(dtype: WalkDtype): KernelSource {
  const type = cudaTypes[dtype];
  return cudaKernel({
    name: `scan.${dtype}`,
    parameters: scanParameters,
    elements: type,
    threads,
    body: `
${columnOfThread}
  const long long first = isReversed != 0 ? length - 1 : 0;
  const long long step = isReversed != 0 ? -(long long)inner : (long long)inner;
  const ${type}* from = input + (outerIndex * length + first) * inner + column;
  ${type}* to = output + (outerIndex * length + first) * inner + column;
  ${type} sum = ${nothing[dtype]};
  unsigned left = length;
  // Input and output may be the same memory, so loads stay behind the stores before them unless they stand there.
  for (; left >= ${ahead}; left -= ${ahead}) {
    ${type} next[${ahead}];
    for (int i = 0; i < ${ahead}; i++) next[i] = from[i * step];
    for (int i = 0; i < ${ahead}; i++) {
      sum += next[i];
      to[i * step] = sum;
    }
    from += ${ahead} * step;
    to += ${ahead} * step;
  }
  for (; left > 0; left--) {
    sum += *from;
    *to = sum;
    from += step;
    to += step;
  }`,
  });
}
