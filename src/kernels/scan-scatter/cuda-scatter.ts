/**
 * scatterAdd on CUDA, with the CPU's bits: no two threads add to the same element, and additions follow the order of the entries. With an
 * index per element, a thread owns a column. With an index per row, a block owns some rows of the target: it scans the whole index for
 * its entries, and each of its threads adds them in one column.
 */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand } from "../../runtime/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";
import { blocksForColumns, columnOfThread, threads, zero } from "./cuda-columns.js";
import type { ScanDtype } from "./element.js";
import type { ScatterAdd } from "./problem.js";
import type { Indexing } from "./scatter-kernels.js";

/** Loads in flight per thread. */
const unroll = 8;
const warps = threads / 32;

const eachParameters = {
  index: "in",
  source: "in",
  target: "inout",
  outer: "u32",
  length: "u32",
  inner: "u32",
  count: "u32",
} as const;

/** `rowsPerBlock`: rows of the target that a block owns. */
const sharedParameters = { ...eachParameters, rowsPerBlock: "u32" } as const;

export function lowerScatterAddOnCuda(scatter: ScatterAdd, op: string): LaunchCommand {
  const { dtype, outer, length, inner, count, index, isIndexShared, source, target } = scatter;
  const values = { index, source, target, outer, length, inner, count };
  if (!isIndexShared) {
    return {
      ...{ kind: "launch", op },
      source: cudaScatterKernel(dtype, "each"),
      blocks: blocksForColumns(outer, inner),
      arguments: argumentsInOrder(eachParameters, values),
    };
  }
  const chunks = Math.ceil(inner / threads);
  const rowsPerBlock = selectRowsPerBlock(outer * length * chunks);
  return {
    ...{ kind: "launch", op },
    source: cudaScatterKernel(dtype, "shared"),
    blocks: outer * Math.ceil(length / rowsPerBlock) * chunks,
    arguments: argumentsInOrder(sharedParameters, { ...values, rowsPerBlock }),
  };
}

/** Every block reads the whole index: 1024 blocks fill any device (8 per SM of 132), then blocks get more rows, up to 64. */
function selectRowsPerBlock(totalRows: number): number {
  return Math.min(Math.max(Math.ceil(totalRows / 1024), 1), 64);
}

export function cudaScatterKernel(dtype: ScanDtype, indexing: Indexing): KernelSource {
  return cachedSource(`cuda scatterAdd ${dtype} ${indexing}`, () =>
    cudaKernel({
      name: `scatterAdd.${indexing}.${dtype}`,
      parameters: indexing === "shared" ? sharedParameters : eachParameters,
      elements: cudaTypes[dtype],
      pointers: { index: "int" },
      threads,
      body: indexing === "shared" ? printShared(dtype) : printEach(dtype),
    }),
  );
}

function printEach(dtype: ScanDtype): string {
  const type = cudaTypes[dtype];
  return `
${columnOfThread}
  const int* entry = index + outerIndex * count * inner + column;
  const ${type}* from = source + outerIndex * count * inner + column;
  ${type}* to = target + outerIndex * length * inner + column;
  const long long step = inner;
  for (unsigned done = 0; done < count; done += ${unroll}) {
    unsigned rows[${unroll}];
    ${type} values[${unroll}];
    for (unsigned i = 0; i < ${unroll}; i++) {
      const bool exists = i < count - done;
      rows[i] = exists ? (unsigned)entry[i * step] : length;
      values[i] = exists ? from[i * step] : ${zero[dtype]};
    }
    for (unsigned i = 0; i < ${unroll}; i++) {
      if (rows[i] < length) to[rows[i] * step] += values[i];
    }
    entry += ${unroll} * step;
    from += ${unroll} * step;
  }`;
}

function printShared(dtype: ScanDtype): string {
  const type = cudaTypes[dtype];
  return `
  __shared__ unsigned entries[${threads}], entryRows[${threads}], warpCounts[${warps}];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned chunks = (inner + ${threads - 1}) / ${threads};
  const unsigned rowBlocks = (length + rowsPerBlock - 1) / rowsPerBlock;
  const unsigned chunk = blockIdx.x % chunks;
  const unsigned firstRow = blockIdx.x / chunks % rowBlocks * rowsPerBlock;
  const long long outerIndex = blockIdx.x / chunks / rowBlocks;
  const unsigned rows = length - firstRow < rowsPerBlock ? length - firstRow : rowsPerBlock;
  // Short rows: several groups of threads work on different rows; each row belongs to one group.
  const unsigned columns = inner < ${threads} ? inner : ${threads};
  const unsigned groups = ${threads} / columns, group = threadIdx.x / columns;
  const unsigned column = chunk * ${threads} + threadIdx.x % columns;
  const bool hasColumn = group < groups && column < inner && outerIndex < outer;
  const ${type}* from = source + outerIndex * count * inner + column;
  ${type}* to = target + (outerIndex * length + firstRow) * inner + column;
  const long long step = inner;

  // The accumulator of the current row; it is stored when another row follows.
  const unsigned none = 0xffffffffu;
  unsigned current = none;
  ${type} sum = 0;
  for (unsigned first = 0; first < count; first += ${threads}) {
    const unsigned entry = first + threadIdx.x;
    const unsigned row = entry < count ? (unsigned)index[entry] - firstRow : none;
    const bool isOwned = row < rows;
    const unsigned owned = __ballot_sync(0xffffffffu, isOwned);
    if (lane == 0) warpCounts[warp] = __popc(owned);
    __syncthreads();
    unsigned before = 0, total = 0;
    for (unsigned i = 0; i < ${warps}; i++) {
      if (i < warp) before += warpCounts[i];
      total += warpCounts[i];
    }
    if (isOwned) {
      const unsigned slot = before + __popc(owned & ((1u << lane) - 1));
      entries[slot] = entry;
      entryRows[slot] = row;
    }
    __syncthreads();
    for (unsigned done = 0; hasColumn && done < total; done += ${unroll}) {
      unsigned next[${unroll}];
      ${type} values[${unroll}];
      for (unsigned i = 0; i < ${unroll}; i++) {
        const bool exists = done + i < total && entryRows[done + i] % groups == group;
        next[i] = exists ? entryRows[done + i] : none;
        values[i] = exists ? from[entries[done + i] * step] : ${zero[dtype]};
      }
      for (unsigned i = 0; i < ${unroll}; i++) {
        if (next[i] == none) continue;
        if (next[i] != current) {
          if (current != none) to[current * step] = sum;
          current = next[i];
          sum = to[current * step];
        }
        sum += values[i];
      }
    }
  }
  if (current != none) to[current * step] = sum;`;
}
