/**
 * scatterAdd on CUDA, with the CPU's bits: no two threads add to one element, and each adds in the order of the entries.
 * With an index for each element a thread owns a column. With an index for whole rows a block owns some rows of the
 * target: it looks through all of the index for its entries, and its threads add those, a column each.
 */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand } from "../../runtime/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { argumentsInOrder } from "../codegen/wasm/wasm-function.js";
import { cachedSource } from "../source-cache.js";
import { blocksForColumns, columnOfThread, nothing, threads } from "./cuda-columns.js";
import type { WalkDtype } from "./element.js";
import type { ScatterAdd } from "./scatter-add.js";
import type { Indexing } from "./scatter-kernels.js";

/** Elements that are asked for before the first of them is needed. */
const ahead = 8;
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

/** With how many of the target's rows a block has. */
const sharedParameters = { ...eachParameters, rowsPerBlock: "u32" } as const;

export function lowerScatterAddOnCuda(scatter: ScatterAdd, op: string): LaunchCommand {
  const { dtype, outer, length, inner, count, index, isIndexShared, source, target } = scatter;
  const given = { index, source, target, outer, length, inner, count };
  if (!isIndexShared) {
    return {
      ...{ kind: "launch", op },
      source: cudaScatterKernel(dtype, "each"),
      blocks: blocksForColumns(outer, inner),
      arguments: argumentsInOrder(eachParameters, given),
    };
  }
  const chunks = Math.ceil(inner / threads);
  const rowsPerBlock = chooseRowsPerBlock(outer * length * chunks);
  return {
    ...{ kind: "launch", op },
    source: cudaScatterKernel(dtype, "shared"),
    blocks: outer * Math.ceil(length / rowsPerBlock) * chunks,
    arguments: argumentsInOrder(sharedParameters, { ...given, rowsPerBlock }),
  };
}

/** Every block reads the whole index: enough of them to fill the device, and then more rows in each. */
function chooseRowsPerBlock(rowsInAll: number): number {
  return Math.min(Math.max(Math.ceil(rowsInAll / 1024), 1), 64);
}

export function cudaScatterKernel(dtype: WalkDtype, indexing: Indexing): KernelSource {
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

function printEach(dtype: WalkDtype): string {
  const type = cudaTypes[dtype];
  return `
${columnOfThread}
  const int* entry = index + outerIndex * count * inner + column;
  const ${type}* from = source + outerIndex * count * inner + column;
  ${type}* to = target + outerIndex * length * inner + column;
  const long long step = inner;
  for (unsigned done = 0; done < count; done += ${ahead}) {
    unsigned rows[${ahead}];
    ${type} values[${ahead}];
    for (unsigned i = 0; i < ${ahead}; i++) {
      const bool isThere = i < count - done;
      rows[i] = isThere ? (unsigned)entry[i * step] : length;
      values[i] = isThere ? from[i * step] : ${nothing[dtype]};
    }
    for (unsigned i = 0; i < ${ahead}; i++) {
      if (rows[i] < length) to[rows[i] * step] += values[i];
    }
    entry += ${ahead} * step;
    from += ${ahead} * step;
  }`;
}

function printShared(dtype: WalkDtype): string {
  const type = cudaTypes[dtype];
  return `
  __shared__ unsigned entries[${threads}], places[${threads}], found[${warps}];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned chunks = (inner + ${threads - 1}) / ${threads};
  const unsigned rowBlocks = (length + rowsPerBlock - 1) / rowsPerBlock;
  const unsigned chunk = blockIdx.x % chunks;
  const unsigned firstRow = blockIdx.x / chunks % rowBlocks * rowsPerBlock;
  const long long outerIndex = blockIdx.x / chunks / rowBlocks;
  const unsigned rows = length - firstRow < rowsPerBlock ? length - firstRow : rowsPerBlock;
  // Where rows are short, several groups of threads share them: a row is always one group's.
  const unsigned columns = inner < ${threads} ? inner : ${threads};
  const unsigned groups = ${threads} / columns, group = threadIdx.x / columns;
  const unsigned column = chunk * ${threads} + threadIdx.x % columns;
  const bool isAdding = group < groups && column < inner && outerIndex < outer;
  const ${type}* from = source + outerIndex * count * inner + column;
  ${type}* to = target + (outerIndex * length + firstRow) * inner + column;
  const long long step = inner;

  // The sum of the row that was added to last; it goes back to memory when another row's turn comes.
  const unsigned none = 0xffffffffu;
  unsigned held = none;
  ${type} sum = 0;
  for (unsigned first = 0; first < count; first += ${threads}) {
    const unsigned own = first + threadIdx.x;
    const unsigned place = own < count ? (unsigned)index[own] - firstRow : none;
    const bool isHere = place < rows;
    const unsigned here = __ballot_sync(0xffffffffu, isHere);
    if (lane == 0) found[warp] = __popc(here);
    __syncthreads();
    unsigned before = 0, total = 0;
    for (unsigned i = 0; i < ${warps}; i++) {
      if (i < warp) before += found[i];
      total += found[i];
    }
    if (isHere) {
      const unsigned at = before + __popc(here & ((1u << lane) - 1));
      entries[at] = own;
      places[at] = place;
    }
    __syncthreads();
    for (unsigned done = 0; isAdding && done < total; done += ${ahead}) {
      unsigned next[${ahead}];
      ${type} values[${ahead}];
      for (unsigned i = 0; i < ${ahead}; i++) {
        const bool isThere = done + i < total && places[done + i] % groups == group;
        next[i] = isThere ? places[done + i] : none;
        values[i] = isThere ? from[entries[done + i] * step] : ${nothing[dtype]};
      }
      for (unsigned i = 0; i < ${ahead}; i++) {
        if (next[i] == none) continue;
        if (next[i] != held) {
          if (held != none) to[held * step] = sum;
          held = next[i];
          sum = to[held * step];
        }
        sum += values[i];
      }
    }
  }
  if (held != none) to[held * step] = sum;`;
}
