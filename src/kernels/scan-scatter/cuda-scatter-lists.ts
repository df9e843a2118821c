/**
 * scatterAdd on CUDA with row lists, for a few rows with many entries each. A block has some columns of one row. Its first warp adds the
 * row's entries in the order of the list, one column per lane. The others copy entries to shared memory by cp.async, several rounds ahead,
 * so that even a row with most of the entries has many copies in flight.
 */

import type { KernelSource } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { cudaKernel, cudaTypes } from "../codegen/cuda/cuda-function.js";
import { cpAsyncIntrinsics } from "../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../codegen/cuda/intrinsics/intrinsic.js";
import { warpSize } from "../cost-model.js";
import { cachedSource } from "../source-cache.js";
import { type RowScatterVariant, vectorOf } from "./cuda-scatter-rows.js";
import type { ScanDtype } from "./element.js";

const copyingWarps = 4;
const threads = (1 + copyingWarps) * warpSize;
/** Rounds of entries in shared memory: one is added while the others are copied. */
const rounds = 4;
/** Shared memory of a round. Six blocks of all rounds fit on an SM of Hopper. */
const roundBytes = 8 * 1024;
/** Entries that a thread adds at a time. */
const unroll = 32;

/** Entries of a round. */
export const listedEntriesPerRound = (dtype: ScanDtype): number =>
  roundBytes / (warpSize * dtypes[dtype].bytes);

export function listParameters(access: RowScatterVariant["access"]) {
  return {
    ...({ starts: "in", positions: "in", source: "in", target: access } as const),
    ...({ outerSource: "u32", sourceRow: "u32", length: "u32", inner: "u32" } as const),
  };
}

interface Variant extends Pick<RowScatterVariant, "dtype" | "access"> {
  /** True if all rows of the source, of whole vectors of 16 bytes, begin on 16 bytes. */
  readonly isVectorised: boolean;
}

export function listScatterKernel(variant: Variant): KernelSource {
  const { dtype, access, isVectorised } = variant;
  return cachedSource(
    `cuda scatterAdd of row lists ${dtype} ${access}${isVectorised ? " in vectors" : ""}`,
    () =>
      cudaKernel({
        name: `scatterAdd.lists${access === "inout" ? "" : ".zeroed"}.${dtype}`,
        ...{ elements: cudaTypes[dtype], threads, parameters: listParameters(access) },
        pointers: { starts: "unsigned", positions: "unsigned" },
        declarations: onlyOnDevice(cpAsyncIntrinsics),
        body: print(variant),
      }),
  );
}

function print({ dtype, access, isVectorised }: Variant): string {
  const type = cudaTypes[dtype];
  const entries = listedEntriesPerRound(dtype);
  const perWarp = entries / copyingWarps;
  const vector = isVectorised ? vectorOf(dtype) : 1;
  return `
  __shared__ __align__(16) ${type} ring[${rounds}][${entries}][${warpSize}];
  const unsigned lane = threadIdx.x % ${warpSize}, warp = threadIdx.x / ${warpSize};
  const unsigned chunks = (inner + ${warpSize - 1}) / ${warpSize};
  const unsigned firstColumn = blockIdx.x % chunks * ${warpSize}, row = blockIdx.x / chunks % length;
  const long long outerSlice = blockIdx.x / chunks / length;
  const unsigned begin = starts[row], count = starts[row + 1] - begin;

  // A copying warp has ${perWarp} consecutive entries per round. Each lane has one entry's position, loaded one round ahead. Some lanes copy
  // the columns of an entry together.
  const unsigned ownEntry = warp > 0 ? (warp - 1) * ${perWarp} : 0, copiedEntry = lane * ${vector} / ${warpSize};
  const unsigned copiedColumn = lane * ${vector} % ${warpSize};
  const bool isCopying = warp > 0 && firstColumn + copiedColumn < inner, hasPosition = warp > 0 && lane < ${perWarp};
  const ${type}* const from = source + outerSlice * outerSource + firstColumn + copiedColumn;
  ${type}* const ownRing = &ring[0][ownEntry + copiedEntry][copiedColumn];
  unsigned position = hasPosition && ownEntry + lane < count ? positions[begin + ownEntry + lane] : 0;
  const auto copyRound = [&](unsigned firstEntry) {
    if (warp > 0 && firstEntry < count) {
      const unsigned present = position, next = firstEntry + ${entries} + ownEntry + lane;
      position = hasPosition && next < count ? positions[begin + next] : 0;
      ${type}* const to = ownRing + firstEntry / ${entries} % ${rounds} * ${entries * warpSize};
      const int last = (int)(count - firstEntry) - 1 - (int)(ownEntry + copiedEntry);
#pragma unroll
      for (int i = 0; i < ${perWarp}; i += ${vector}) {
        const unsigned copied = __shfl_sync(0xffffffffu, present, i + (int)copiedEntry);
        if (isCopying && i <= last)
          cpAsync<${vector} * sizeof(${type})>(to + i * ${warpSize}, from + (long long)copied * sourceRow, ${vector} * sizeof(${type}));
      }
    }
    cpAsyncCommit();
  };
#pragma unroll 1
  for (unsigned round = 0; round < ${rounds - 1}; round++) copyRound(round * ${entries});

  const unsigned column = firstColumn + lane;
  const bool isAdding = warp == 0 && column < inner;
  ${type}* const to = target + (outerSlice * length + row) * inner + column;
  ${type} sum = ${access === "inout" ? "isAdding ? *to : 0" : "0"};
  for (unsigned first = 0; first < count; first += ${entries}) {
    cpAsyncWait<${rounds - 2}>();
    // The copies of this round are visible, and the round before it has been added.
    __syncthreads();
    copyRound(first + ${(rounds - 1) * entries});
    if (warp > 0) continue;
    const unsigned left = count - first < ${entries} ? count - first : ${entries};
    const ${type}* const values = &ring[first / ${entries} % ${rounds}][0][lane];
    unsigned added = 0;
    for (; added + ${unroll} <= left; added += ${unroll}) {
      ${type} loaded[${unroll}];
#pragma unroll
      for (unsigned i = 0; i < ${unroll}; i++) loaded[i] = values[(added + i) * ${warpSize}];
#pragma unroll
      for (unsigned i = 0; i < ${unroll}; i++) sum += loaded[i];
    }
#pragma unroll 4
    for (; added < left; added++) sum += values[added * ${warpSize}];
  }
  if (isAdding) *to = sum;`;
}
