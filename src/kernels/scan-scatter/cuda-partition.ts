/**
 * Partitions the entries of indices by buckets of rows on CUDA; entries of a bucket keep their order. Each warp has a segment of an index.
 * The first launch counts the entries of each bucket in each segment. The second turns counts into offsets within a bucket. The third
 * writes the entries there. Entries outside of the axis are left out. All indices of a group share the launches.
 */

import type { KernelSource } from "../../driver/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { cachedSource } from "../source-cache.js";
import { threads } from "./cuda-columns.js";
import {
  blocksOf,
  groupArguments,
  groupParameters,
  groupPointers,
  groupSize,
  type Member,
  memberNumber,
  memberOfBlock,
} from "./cuda-members.js";
import { buckets } from "./cuda-scatter-plan.js";

const warps = threads / 32;

/** The buffers of a partition. Each has a part for every index. */
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

export interface PartitionedIndex {
  readonly index: Storage;
  readonly count: number;
  readonly length: number;
  readonly rowsPerBucket: number;
  readonly segments: number;
}

const countMember = {
  index: "in",
  count: "u32",
  length: "u32",
  rowsPerBucket: "u32",
  segments: "u32",
  firstSegment: "u32",
} as const;
const offsetMember = { segments: "u32", firstSegment: "u32" } as const;
const placeMember = { ...countMember, firstEntry: "u32" } as const;

const countParameters = { counts: "out", segment: "u32" } as const;
const offsetParameters = { counts: "inout", totals: "out" } as const;
const placeParameters = {
  counts: "in",
  totals: "in",
  starts: "out",
  rows: "partial-out",
  positions: "partial-out",
  segment: "u32",
} as const;

export function lowerPartition(
  indices: readonly PartitionedIndex[],
  segment: number,
  buffers: PartitionBuffers,
  op: string,
): readonly LaunchCommand[] {
  let [firstSegment, firstEntry] = [0, 0];
  const members = indices.map((index): Member => {
    const values = { ...index, firstSegment, firstEntry };
    firstSegment += index.segments;
    firstEntry += index.count;
    return { blocks: Math.ceil(index.segments / warps), values };
  });
  const ofBuckets = members.map((member) => ({ ...member, blocks: buckets / warps }));
  const values = { ...buffers, segment };
  const [count, offset, place] = partitionKernels(groupSize(members.length));
  return [
    {
      ...{ kind: "launch", op, source: count, blocks: blocksOf(members) },
      arguments: [...groupArguments(countMember, members), ...argumentsInOrder(countParameters, values)],
    },
    {
      ...{ kind: "launch", op, source: offset, blocks: blocksOf(ofBuckets) },
      arguments: [...groupArguments(offsetMember, ofBuckets), ...argumentsInOrder(offsetParameters, values)],
    },
    {
      ...{ kind: "launch", op, source: place, blocks: blocksOf(members) },
      arguments: [...groupArguments(placeMember, members), ...argumentsInOrder(placeParameters, values)],
    },
  ];
}

/** The kernels that count entries, compute offsets, and write entries, for groups of this size. */
export function partitionKernels(size: number): readonly [KernelSource, KernelSource, KernelSource] {
  return [
    cachedSource(`cuda partition count of ${size}`, () => printCount(size)),
    cachedSource(`cuda partition offsets of ${size}`, () => printOffsets(size)),
    cachedSource(`cuda partition place of ${size}`, () => printPlace(size)),
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

const countLocals = {
  index: "const unsigned*",
  count: "unsigned",
  length: "unsigned",
  rowsPerBucket: "unsigned",
  segments: "unsigned",
  firstSegment: "unsigned",
};

const warpOfThread = `
  __shared__ unsigned counters[${warps}][${buckets}];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned ownSegment = block * ${warps} + warp;`;

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

const printCount = (size: number): KernelSource =>
  cudaKernel({
    ...{ ...kernel, name: `partition.count.${size}`, declarations },
    parameters: { ...groupParameters(size, countMember), ...countParameters },
    pointers: groupPointers(size, { index: "unsigned" }),
    body: `${memberOfBlock(size, countLocals)}
${warpOfThread}
  for (unsigned bucket = lane; bucket < ${buckets}; bucket += 32) counters[warp][bucket] = 0;
  __syncwarp();
${forEntries("")}
  if (ownSegment >= segments) return;
  unsigned* const ofMember = counts + firstSegment * ${buckets};
  for (unsigned bucket = lane; bucket < ${buckets}; bucket += 32) {
    ofMember[bucket * segments + ownSegment] = counters[warp][bucket];
  }`,
  });

/** One warp per bucket. */
const printOffsets = (size: number): KernelSource =>
  cudaKernel({
    ...{ ...kernel, name: `partition.offsets.${size}` },
    parameters: { ...groupParameters(size, offsetMember), ...offsetParameters },
    body: `${memberOfBlock(size, { segments: "unsigned", firstSegment: "unsigned" }, [memberNumber])}
  const unsigned lane = threadIdx.x % 32, bucket = block * ${warps} + threadIdx.x / 32;
  unsigned* const ofBucket = counts + firstSegment * ${buckets} + bucket * segments;
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
  if (lane == 0) totals[member * ${buckets} + bucket] = total;`,
  });

/** Every block computes the starts of its member's buckets; the member's first block stores them. */
const printPlace = (size: number): KernelSource =>
  cudaKernel({
    ...{ ...kernel, name: `partition.place.${size}`, declarations },
    parameters: { ...groupParameters(size, placeMember), ...placeParameters },
    pointers: groupPointers(size, { index: "unsigned" }),
    body: `${memberOfBlock(size, { ...countLocals, firstEntry: "unsigned" }, [memberNumber])}
${warpOfThread}
  __shared__ unsigned ends[${buckets}];
  ends[threadIdx.x] = totals[member * ${buckets} + threadIdx.x];
  for (unsigned distance = 1; distance < ${buckets}; distance *= 2) {
    __syncthreads();
    const unsigned lower = threadIdx.x >= distance ? ends[threadIdx.x - distance] : 0;
    __syncthreads();
    ends[threadIdx.x] += lower;
  }
  if (block == 0) {
    unsigned* const ofMember = starts + member * ${buckets + 1};
    if (threadIdx.x == 0) ofMember[0] = firstEntry;
    ofMember[threadIdx.x + 1] = firstEntry + ends[threadIdx.x];
  }
  __syncthreads();
  for (unsigned bucket = lane; ownSegment < segments && bucket < ${buckets}; bucket += 32) {
    const unsigned start = bucket == 0 ? 0 : ends[bucket - 1];
    counters[warp][bucket] = firstEntry + start + counts[firstSegment * ${buckets} + bucket * segments + ownSegment];
  }
  __syncwarp();
${forEntries(`    if (hasBucket) {
      const unsigned slot = counters[warp][bucket] + __popc(before);
      rows[slot] = row;
      positions[slot] = position;
    }
    __syncwarp();`)}`,
  });
