/**
 * scatterAdd on CUDA with an index per row. A block owns some rows of the target, and some of their columns; a thread owns one column of
 * some of these rows, and adds their entries in the order of the index. All threads of the block load entries to shared memory, so that
 * a row with many entries has many loads in flight.
 */

import type { KernelSource } from "../../driver/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { cachedSource } from "../source-cache.js";
import { threads } from "./cuda-columns.js";
import { type Entries, type RowScatterVariant, rowsOfBlock, selectEntries } from "./cuda-scatter-block.js";
import { columnsPerBlock, residentBlocks, residentSparseBlocks, tileElements } from "./cuda-scatter-plan.js";
import { printSparse } from "./cuda-scatter-sparse.js";

const warps = threads / 32;
/** Entries that a block reads at a time, and how many of them a lane reads. */
const entriesPerRound = 2048;
const entriesPerLane = entriesPerRound / threads;
/** Entries that a thread adds at a time. */
const unroll = 8;

const sizes = {
  outerSource: "u32",
  sourceRow: "u32",
  outer: "u32",
  length: "u32",
  inner: "u32",
  rowsPerBlock: "u32",
  columnsPerBlock: "u32",
} as const;

export function allEntriesParameters(access: RowScatterVariant["access"]) {
  return { index: "in", source: "in", target: access, count: "u32", outerIndex: "u32", ...sizes } as const;
}

export function bucketParameters(access: RowScatterVariant["access"]) {
  return {
    rows: "in",
    positions: "in",
    starts: "in",
    source: "in",
    target: access,
    ...sizes,
    rowsPerBucket: "u32",
  } as const;
}

export function rowScatterKernel(variant: RowScatterVariant): KernelSource {
  const { dtype, isSparse, entries, access } = variant;
  const density = isSparse ? "sparse" : "dense";
  return cachedSource(`cuda scatterAdd of ${density} rows ${dtype} ${entries} ${access}`, () => {
    const kernel = {
      name: `scatterAdd.${density}.${entries}${access === "inout" ? "" : ".zeroed"}.${dtype}`,
      elements: cudaTypes[dtype],
      threads,
      blocksPerSm: isSparse ? residentSparseBlocks : residentBlocks,
      body: isSparse ? printSparse(variant, entriesOf[entries]) : print(variant),
    };
    return entries === "all"
      ? cudaKernel({ ...kernel, parameters: allEntriesParameters(access), pointers: { index: "unsigned" } })
      : cudaKernel({
          ...{ ...kernel, parameters: bucketParameters(access) },
          pointers: { rows: "unsigned", positions: "unsigned", starts: "unsigned" },
        });
  });
}

const entriesOf: Readonly<Record<RowScatterVariant["entries"], Entries>> = {
  all: {
    // Offsets into the index, not a pointer: the sparse kernel has no registers left for one.
    range: "const unsigned begin = (unsigned)outerSlice * outerIndex, end = begin + count;",
    row: "index[entry]",
    position: "entry - begin",
  },
  bucket: {
    range: `const unsigned bucket = firstRow / rowsPerBucket;
  const unsigned begin = starts[bucket], end = starts[bucket + 1];`,
    row: "rows[entry]",
    position: "positions[entry]",
  },
};

function print({ dtype, entries, access }: RowScatterVariant): string {
  const type = cudaTypes[dtype];
  const { range, row, position } = entriesOf[entries];
  // At least eight groups of threads share the elements of the stage, and each thread loads this many.
  const loads = tileElements(dtype) / threads;
  return `
  __shared__ ${type} sums[${tileElements(dtype)}], stage[${tileElements(dtype)}];
  __shared__ unsigned ownPositions[${entriesPerRound}], warpCounts[${warps}];
  __shared__ unsigned short ownRows[${entriesPerRound}];
${rowsOfBlock}

  // A group of threads has one thread per column. It owns the rows whose number is the group's, modulo the number of groups.
  unsigned groups = ${threads / columnsPerBlock};
  while (2 * groups * columns <= ${threads}) groups *= 2;
  const unsigned group = threadIdx.x / columns, column = threadIdx.x % columns;
  const bool hasColumn = group < groups && outerSlice < outer;
  const ${type}* from = source + outerSlice * outerSource + firstColumn + column;
  ${type}* to = target + (outerSlice * length + firstRow) * inner + firstColumn + column;
  const long long step = inner, fromStep = sourceRow;
  for (unsigned row = group; hasColumn && row < rowCount; row += groups) {
    sums[row * columns + column] = ${access === "inout" ? "to[row * step]" : "0"};
  }

  // The accumulator of the current row; it is stored when another row follows.
  const unsigned none = 0xffffffffu;
  unsigned current = none;
  ${type} sum = 0;
  ${range}
  for (unsigned first = begin; first < end; first += ${entriesPerRound}) {
    // Select the entries of the block's rows, in their order. A warp has consecutive entries.
    ${selectEntries("first", row, entriesPerLane)}
    if (lane == 0) warpCounts[warp] = ownCount;
    __syncthreads();
    unsigned slot = 0, total = 0;
    for (unsigned i = 0; i < ${warps}; i++) {
      if (i < warp) slot += warpCounts[i];
      total += warpCounts[i];
    }
    for (unsigned i = 0; i < ${entriesPerLane}; i++) {
      const unsigned entry = firstOfLane + 32 * i;
      const unsigned own = slot + __popc(owned[i] & ((1u << lane) - 1));
      if (rowOf[i] < rowCount) {
        ownRows[own] = (unsigned short)rowOf[i];
        ownPositions[own] = ${position};
      }
      slot += __popc(owned[i]);
    }
    __syncthreads();

    // While the threads add the entries of the stage, their loads of the next ones are in flight.
    const unsigned stageEntries = groups * ${loads};
    ${type} loaded[${loads}];
    for (unsigned i = 0; i < ${loads}; i++) {
      const unsigned entry = group + i * groups;
      if (hasColumn && entry < total) loaded[i] = from[ownPositions[entry] * fromStep];
    }
    for (unsigned done = 0; done < total; done += stageEntries) {
      for (unsigned i = 0; i < ${loads}; i++) {
        const unsigned entry = group + i * groups;
        if (hasColumn && done + entry < total) stage[entry * columns + column] = loaded[i];
      }
      __syncthreads();
      for (unsigned i = 0; i < ${loads}; i++) {
        const unsigned entry = done + stageEntries + group + i * groups;
        if (hasColumn && entry < total) loaded[i] = from[ownPositions[entry] * fromStep];
      }
      const unsigned staged = total - done < stageEntries ? total - done : stageEntries;
      if (rowCount == 1) {
        // The entries of one row need no comparison of rows.
        if (hasColumn && group == 0 && current == none) {
          current = 0;
          sum = sums[column];
        }
        for (unsigned next = 0; hasColumn && group == 0 && next < staged; next += ${unroll}) {
          ${type} values[${unroll}];
          for (unsigned i = 0; i < ${unroll}; i++) values[i] = next + i < staged ? stage[(next + i) * columns + column] : 0;
          for (unsigned i = 0; i < ${unroll}; i++) {
            if (next + i < staged) sum += values[i];
          }
        }
      } else for (unsigned next = 0; hasColumn && group < rowCount && next < staged; next += ${unroll}) {
        unsigned rowAt[${unroll}];
        ${type} values[${unroll}];
        for (unsigned i = 0; i < ${unroll}; i++) {
          const unsigned row = next + i < staged ? ownRows[done + next + i] : none;
          const bool isOwned = row != none && (row & (groups - 1)) == group;
          rowAt[i] = isOwned ? row : none;
          values[i] = isOwned ? stage[(next + i) * columns + column] : 0;
        }
        for (unsigned i = 0; i < ${unroll}; i++) {
          if (rowAt[i] == none) continue;
          if (rowAt[i] != current) {
            if (current != none) sums[current * columns + column] = sum;
            current = rowAt[i];
            sum = sums[current * columns + column];
          }
          sum += values[i];
        }
      }
      __syncthreads();
    }
  }
  if (current != none) sums[current * columns + column] = sum;
  for (unsigned row = group; hasColumn && row < rowCount; row += groups) {
    to[row * step] = sums[row * columns + column];
  }`;
}
