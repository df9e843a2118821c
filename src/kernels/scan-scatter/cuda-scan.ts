/** Prefix sums along an axis on CUDA: one thread per column, adding in the same order as the CPU. */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand } from "../../runtime/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";
import { blocksForColumns, columnOfThread, threads, zero } from "./cuda-columns.js";
import type { ScanDtype } from "./element.js";
import type { Scan } from "./problem.js";

/** Loads in flight per thread. */
const unroll = 8;

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

export function cudaScanKernel(dtype: ScanDtype): KernelSource {
  return cachedSource(`cuda scan ${dtype}`, () => printScan(dtype));
}

function printScan(dtype: ScanDtype): KernelSource {
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
  ${type} sum = ${zero[dtype]};
  unsigned remaining = length;
  // Input and output may alias, so the compiler cannot move loads before stores; they are issued in batches here.
  for (; remaining >= ${unroll}; remaining -= ${unroll}) {
    ${type} next[${unroll}];
    for (int i = 0; i < ${unroll}; i++) next[i] = from[i * step];
    for (int i = 0; i < ${unroll}; i++) {
      sum += next[i];
      to[i * step] = sum;
    }
    from += ${unroll} * step;
    to += ${unroll} * step;
  }
  for (; remaining > 0; remaining--) {
    sum += *from;
    *to = sum;
    from += step;
    to += step;
  }`,
  });
}
