/**
 * Partitions the entries of an index by buckets of rows on CUDA; entries of a bucket keep their order. Each warp has a segment of the
 * index. The first launch counts the entries of each bucket in each segment. The second turns counts into offsets within a bucket. The
 * third writes the entries there. Entries outside of the axis are left out.
 */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";
import { threads } from "./cuda-columns.js";
import { buckets, type Partition } from "./cuda-scatter-plan.js";

const warps = threads / 32;

/** The buffers of a partition. */
export interface PartitionBuffers {
  /** [buckets, segments]: entries of a bucket in a segment, then in all segments before it. */
  readonly counts: Storage;
  /** [buckets]: entries of a bucket. */
  readonly totals: Storage;
  /** [buckets + 1]: where a bucket begins in `rows` and `positions`. */
  readonly starts: Storage;
  /** [count]: the entries' rows in the target, by bucket. */
  readonly rows: Storage;
  /** [count]: the entries' positions in the index. */
  readonly positions: Storage;
}

const segmentParameters = {
  count: "u32",
  length: "u32",
  rowsPerBucket: "u32",
  segment: "u32",
  segments: "u32",
} as const;

const countParameters = { index: "in", counts: "out", ...segmentParameters } as const;
const offsetParameters = { counts: "inout", totals: "out", segments: "u32" } as const;
const placeParameters = {
  index: "in",
  counts: "in",
  totals: "in",
  starts: "out",
  rows: "partial-out",
  positions: "partial-out",
  ...segmentParameters,
} as const;

export function lowerPartition(
  { rowsPerBucket, segment, segments }: Partition,
  entries: { readonly index: Storage; readonly count: number; readonly length: number },
  buffers: PartitionBuffers,
  op: string,
): readonly LaunchCommand[] {
  const values = { ...entries, ...buffers, rowsPerBucket, segment, segments };
  const blocks = Math.ceil(segments / warps);
  const [count, offset, place] = partitionKernels();
  return [
    { kind: "launch", op, source: count, blocks, arguments: argumentsInOrder(countParameters, values) },
    {
      ...{ kind: "launch", op, source: offset, blocks: buckets / warps },
      arguments: argumentsInOrder(offsetParameters, values),
    },
    { kind: "launch", op, source: place, blocks, arguments: argumentsInOrder(placeParameters, values) },
  ];
}

/** The kernels that count entries, compute offsets, and write entries. */
export function partitionKernels(): readonly [KernelSource, KernelSource, KernelSource] {
  return [
    cachedSource("cuda partition count", printCount),
    cachedSource("cuda partition offsets", printOffsets),
    cachedSource("cuda partition place", printPlace),
  ];
}

const kernel = { elements: "unsigned", threads } as const;

/** C++: the lanes whose entries are in the same bucket; an entry outside of the axis has no bucket. */
const declarations = `
static __device__ __forceinline__ unsigned lanesOfBucket(unsigned bucket, bool hasBucket) {
  unsigned lanes = __ballot_sync(0xffffffffu, hasBucket);
  for (unsigned bit = 0; bit < ${Math.log2(buckets)}; bit++) {
    const bool isSet = (bucket >> bit & 1) != 0;
    const unsigned set = __ballot_sync(0xffffffffu, isSet);
    lanes &= isSet ? set : ~set;
  }
  return lanes;
}`;

const warpOfThread = `
  __shared__ unsigned counters[${warps}][${buckets}];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned ownSegment = blockIdx.x * ${warps} + warp;`;

/** C++: a loop over the warp's entries. `lanes` have the same bucket as this lane; `isFirst` is true for the first of them. */
const forEntries = (body: string): string => `
  const unsigned begin = ownSegment * segment;
  const unsigned end = begin >= count ? begin : count - begin < segment ? count : begin + segment;
  for (unsigned first = begin; first < end; first += 32) {
    const unsigned position = first + lane;
    const unsigned row = position < end ? index[position] : length;
    const bool hasBucket = row < length;
    const unsigned bucket = hasBucket ? row / rowsPerBucket : 0;
    const unsigned lanes = lanesOfBucket(bucket, hasBucket);
    const unsigned before = lanes & ((1u << lane) - 1);
    const bool isFirst = hasBucket && before == 0;
${body}
    if (isFirst) counters[warp][bucket] += __popc(lanes);
    __syncwarp();
  }`;

const printCount = (): KernelSource =>
  cudaKernel({
    ...{ ...kernel, name: "partition.count", parameters: countParameters, declarations },
    body: `${warpOfThread}
  for (unsigned bucket = lane; bucket < ${buckets}; bucket += 32) counters[warp][bucket] = 0;
  __syncwarp();
${forEntries("")}
  if (ownSegment >= segments) return;
  for (unsigned bucket = lane; bucket < ${buckets}; bucket += 32) {
    counts[bucket * segments + ownSegment] = counters[warp][bucket];
  }`,
  });

/** One warp per bucket. */
const printOffsets = (): KernelSource =>
  cudaKernel({
    ...{ ...kernel, name: "partition.offsets", parameters: offsetParameters },
    body: `
  const unsigned lane = threadIdx.x % 32, bucket = blockIdx.x * ${warps} + threadIdx.x / 32;
  unsigned* const ofBucket = counts + bucket * segments;
  unsigned total = 0;
  for (unsigned first = 0; first < segments; first += 32) {
    const bool exists = first + lane < segments;
    const unsigned own = exists ? ofBucket[first + lane] : 0;
    unsigned sum = own;
    for (unsigned distance = 1; distance < 32; distance *= 2) {
      const unsigned lower = __shfl_sync(0xffffffffu, sum, (int)(lane - distance));
      if (lane >= distance) sum += lower;
    }
    if (exists) ofBucket[first + lane] = total + sum - own;
    total += __shfl_sync(0xffffffffu, sum, 31);
  }
  if (lane == 0) totals[bucket] = total;`,
  });

/** Every block computes the starts of the buckets; the first one stores them. */
const printPlace = (): KernelSource =>
  cudaKernel({
    ...{ ...kernel, name: "partition.place", parameters: placeParameters, declarations },
    body: `${warpOfThread}
  __shared__ unsigned ends[${buckets}];
  ends[threadIdx.x] = totals[threadIdx.x];
  for (unsigned distance = 1; distance < ${buckets}; distance *= 2) {
    __syncthreads();
    const unsigned lower = threadIdx.x >= distance ? ends[threadIdx.x - distance] : 0;
    __syncthreads();
    ends[threadIdx.x] += lower;
  }
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) starts[0] = 0;
    starts[threadIdx.x + 1] = ends[threadIdx.x];
  }
  __syncthreads();
  for (unsigned bucket = lane; ownSegment < segments && bucket < ${buckets}; bucket += 32) {
    const unsigned start = bucket == 0 ? 0 : ends[bucket - 1];
    counters[warp][bucket] = start + counts[bucket * segments + ownSegment];
  }
  __syncwarp();
${forEntries(`    if (hasBucket) {
      const unsigned slot = counters[warp][bucket] + __popc(before);
      rows[slot] = row;
      positions[slot] = position;
    }
    __syncwarp();`)}`,
  });
