/**
 * Row lists on CUDA: for each row of a small table, the positions of its entries in the index, in their order. A block has one row and reads
 * the whole index twice: first it counts the entries of its row and of the rows before it, then it writes its list. Entries outside of the
 * axis are in no list.
 */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { maxThreadsPerBlock, warpSize } from "../cost-model.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";

const threads = maxThreadsPerBlock;
const warps = threads / warpSize;
/** Loads in flight per thread. */
const unroll = 8;

export interface RowLists {
  /** [length + 1]: where the list of a row begins in `positions`. */
  readonly starts: Storage;
  /** [count] */
  readonly positions: Storage;
}

const parameters = {
  index: "in",
  starts: "out",
  positions: "partial-out",
  count: "u32",
  length: "u32",
} as const;

export function lowerRowLists(
  entries: { readonly index: Storage; readonly count: number; readonly length: number },
  lists: RowLists,
  op: string,
): LaunchCommand {
  return {
    ...{ kind: "launch", op, source: rowListsKernel(), blocks: entries.length },
    arguments: argumentsInOrder(parameters, { ...entries, ...lists }),
  };
}

/** C++: a loop over the warp's entries; `body` gets those that a lane loads at a time. */
const forEntries = (body: string): string => `
  for (unsigned first = begin; first < end; first += ${warpSize * unroll}) {
    unsigned rows[${unroll}];
    for (unsigned i = 0; i < ${unroll}; i++) {
      const unsigned entry = first + ${warpSize} * i + lane;
      rows[i] = entry < end ? index[entry] : 0xffffffffu;
    }
    for (unsigned i = 0; i < ${unroll}; i++) {
${body}
    }
  }`;

export const rowListsKernel = (): KernelSource =>
  cachedSource("cuda row lists", () =>
    cudaKernel({
      ...{ name: "rowLists", parameters, elements: "unsigned", threads },
      body: `
  __shared__ unsigned ownOfWarp[${warps}], lowerOfWarp[${warps}];
  const unsigned lane = threadIdx.x % ${warpSize}, warp = threadIdx.x / ${warpSize}, row = blockIdx.x;
  // A warp has consecutive entries.
  const unsigned perWarp = (count + ${threads - 1}) / ${threads} * ${warpSize}, begin = warp * perWarp;
  const unsigned end = begin >= count ? begin : count - begin < perWarp ? count : begin + perWarp;
  unsigned own = 0, lower = 0;${forEntries(`      own += rows[i] == row;
      lower += rows[i] < row;`)}
  for (unsigned distance = ${warpSize / 2}; distance >= 1; distance /= 2) {
    own += __shfl_xor_sync(0xffffffffu, own, (int)distance);
    lower += __shfl_xor_sync(0xffffffffu, lower, (int)distance);
  }
  if (lane == 0) {
    ownOfWarp[warp] = own;
    lowerOfWarp[warp] = lower;
  }
  __syncthreads();
  unsigned start = 0, before = 0, total = 0;
  for (unsigned i = 0; i < ${warps}; i++) {
    start += lowerOfWarp[i];
    if (i < warp) before += ownOfWarp[i];
    total += ownOfWarp[i];
  }
  if (threadIdx.x == 0) {
    starts[row] = start;
    if (row + 1 == length) starts[length] = start + total;
  }
  unsigned slot = start + before;
  if (own == 0) return;${forEntries(`      const unsigned lanes = __ballot_sync(0xffffffffu, rows[i] == row);
      if (rows[i] == row) positions[slot + __popc(lanes & ((1u << lane) - 1))] = first + ${warpSize} * i + lane;
      slot += __popc(lanes);`)}`,
    }),
  );
