/**
 * How scatterAdd with an index per row runs on a CUDA device. A block owns some rows of the target, and some of their columns. It needs
 * the entries of its rows, in the order of the index:
 *
 * - It reads the whole index and selects them. This is one launch, but every block reads the index again.
 * - Or three launches partition the entries by rows first, and a block reads one bucket. This pays off if the bytes that the blocks read
 *   again take longer to read than three launches take.
 *
 * - If a table has few rows with many entries each, one launch lists the entries of every row. Each of its blocks reads the whole index.
 *   So lists are used if these reads take less time than the two saved launches. See cuda-row-lists.ts.
 *
 * There are three kernels. The one for sparse entries, at most one per row on average, spends little on rows without entries. One is for
 * rows with more entries, and one adds the entries of row lists.
 *
 * All of them add in the same order, so the selection changes no bits.
 */

import type { DeviceInfo } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { launchBytes, warpSize } from "../cost-model.js";
import { threads } from "./cuda-columns.js";
import type { ScatterAdd } from "./problem.js";

export type ScatterSizes = Pick<ScatterAdd, "dtype" | "outer" | "length" | "inner" | "count">;

/** The columns of a block, if entries are not sparse: one per lane, so that a warp loads and stores whole sectors. */
export const columnsPerBlock = warpSize;
/** The rows of a block, if entries are sparse: a warp compares each of its rows with the entries of the block. */
export const maxSparseRows = 256;
/** Blocks of an SM, if entries are sparse: more would have too few registers. */
export const residentSparseBlocks = 4;
/** Shared memory for the sums of a block's rows; the same again holds loaded entries. */
const tileBytes = 16 * 1024;
/** One thread per bucket. */
export const buckets = threads;
const partitionLaunches = 3;
/** Entries that a warp partitions, if there are few of them: four loads in flight per lane. */
const minSegment = 4 * warpSize;
/** The registers of an SM suffice for this many blocks on every architecture, without spills. */
export const residentBlocks = 2;
/** Waves of blocks, if there are enough rows: some rows have more entries than others. */
const waves = 4;

export interface ScatterPlan {
  /** True for the kernel of sparse entries. */
  readonly isSparse: boolean;
  readonly rowsPerBlock: number;
  readonly columnsPerBlock: number;
  readonly blocks: number;
  /** True if row lists have the entries of each row. */
  readonly hasLists: boolean;
  /** Undefined if every block reads the whole index, or a list. */
  readonly partition: Partition | undefined;
}

export interface Partition {
  /** A multiple of the rows of a block, so that a block's entries are in one bucket. */
  readonly rowsPerBucket: number;
  /** Entries of the index that a warp partitions. */
  readonly segment: number;
  readonly segments: number;
}

export function tileElements(dtype: ScatterAdd["dtype"]): number {
  return tileBytes / dtypes[dtype].bytes;
}

export function planScatter(device: Pick<DeviceInfo, "parallelism">, shape: ScatterSizes): ScatterPlan {
  const { outer, length, inner, count } = shape;
  const sms = device.parallelism;
  // With fewer columns, lanes of a warp that owns a row would be idle.
  const isSparse = count <= length && inner >= warpSize;
  const block = isSparse ? sparseBlock(sms, shape) : denseBlock(sms, shape);
  const rowBlocks = Math.ceil(length / block.rowsPerBlock);
  const chunks = Math.ceil(inner / block.columnsPerBlock);
  const blocks = outer * rowBlocks * chunks;
  const bytesReadAgain = (blocks - 1) * count * dtypes.i32.bytes;
  const isPartitioned = bytesReadAgain > partitionLaunches * launchBytes * sms;
  if (isPartitioned && !isSparse && prefersLists(sms, shape)) {
    const listBlocks = outer * length * Math.ceil(inner / warpSize);
    return {
      ...{ isSparse, rowsPerBlock: 1, columnsPerBlock: warpSize, blocks: listBlocks },
      ...{ hasLists: true, partition: undefined },
    };
  }
  const partition = isPartitioned ? planPartition() : undefined;
  return { isSparse, ...block, blocks, hasLists: false, partition };

  function planPartition(): Partition {
    const warps = (sms * threads) / warpSize;
    const segment = Math.max(Math.ceil(count / warps / warpSize) * warpSize, minSegment);
    return {
      rowsPerBucket: block.rowsPerBlock * Math.ceil(rowBlocks / buckets),
      segment,
      segments: Math.ceil(count / segment),
    };
  }
}

/** Minimum of entries per row, on average, that keep a block busy: half of a round. */
const minListedEntries = 32;

/** True if the blocks of row lists read fewer bytes than the launches that they save move, and rows have many entries. */
function prefersLists(sms: number, { length, count }: ScatterSizes): boolean {
  const savedLaunches = partitionLaunches - 1;
  const isSmall = length * count * dtypes.i32.bytes <= savedLaunches * launchBytes * sms;
  return isSmall && count >= minListedEntries * length;
}

type BlockSize = Pick<ScatterPlan, "rowsPerBlock" | "columnsPerBlock">;

function denseBlock(sms: number, { dtype, outer, length, inner }: ScatterSizes): BlockSize {
  const chunks = Math.ceil(inner / columnsPerBlock);
  const maxRows = Math.floor(tileElements(dtype) / Math.min(inner, columnsPerBlock));
  const wantedBlocks = sms * residentBlocks * waves;
  const rowsPerBlock = Math.min(Math.ceil((outer * length * chunks) / wantedBlocks), maxRows);
  return { rowsPerBlock, columnsPerBlock };
}

/** One wave of blocks. A warp has whole rows, unless there are fewer rows than warps. */
function sparseBlock(sms: number, { outer, length, inner }: ScatterSizes): BlockSize {
  const wantedBlocks = sms * residentSparseBlocks;
  const rowsPerWave = Math.ceil((outer * length) / wantedBlocks);
  const rowsPerBlock = Math.min(Math.max(rowsPerWave, threads / warpSize), length, maxSparseRows);
  const rowBlocks = outer * Math.ceil(length / rowsPerBlock);
  const chunks = Math.max(1, Math.floor(wantedBlocks / rowBlocks));
  const warpsOfColumns = Math.ceil(inner / warpSize);
  return { rowsPerBlock, columnsPerBlock: warpSize * Math.ceil(warpsOfColumns / chunks) };
}

/** The sizes of the scratch buffers, all i32. A partition has counts, totals, starts, rows, positions; row lists have starts, positions. */
export function scatterBuffers(plan: ScatterPlan, { count, length }: ScatterSizes): readonly number[] {
  const { partition, hasLists } = plan;
  const elements = partition
    ? [buckets * partition.segments, buckets, buckets + 1, count, count]
    : hasLists
      ? [length + 1, count]
      : [];
  return elements.map((size) => size * dtypes.i32.bytes);
}
