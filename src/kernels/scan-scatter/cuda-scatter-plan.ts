/**
 * How scatterAdd with an index per row runs on a CUDA device. A block owns some rows of the target, and some of their columns. It needs
 * the entries of its rows, in the order of the index:
 *
 * - It reads the whole index and selects them. This is one launch, but every block reads the index again.
 * - Or three launches partition the entries by rows first, and a block reads one bucket. This pays off if the bytes that the blocks read
 *   again take longer to read than three launches take.
 *
 * Both add in the same order, so the selection changes no bits.
 */

import type { DeviceInfo } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { launchBytes, warpSize } from "../cost-model.js";
import { threads } from "./cuda-columns.js";
import type { ScatterAdd } from "./problem.js";

export type ScatterShape = Pick<ScatterAdd, "dtype" | "outer" | "length" | "inner" | "count">;

/** The columns of a block: one per lane, so that a warp loads and stores whole sectors. */
export const columnsPerBlock = warpSize;
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
  readonly rowsPerBlock: number;
  readonly blocks: number;
  /** Undefined if every block reads the whole index. */
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

export function planScatter(device: Pick<DeviceInfo, "parallelism">, shape: ScatterShape): ScatterPlan {
  const { dtype, outer, length, inner, count } = shape;
  const sms = device.parallelism;
  const chunks = Math.ceil(inner / columnsPerBlock);
  const maxRows = Math.floor(tileElements(dtype) / Math.min(inner, columnsPerBlock));
  const wantedBlocks = sms * residentBlocks * waves;
  const rowsPerBlock = Math.min(Math.ceil((outer * length * chunks) / wantedBlocks), maxRows);
  const rowBlocks = Math.ceil(length / rowsPerBlock);
  const blocks = outer * rowBlocks * chunks;
  const bytesReadAgain = (blocks - 1) * count * dtypes.i32.bytes;
  const isPartitioned = bytesReadAgain > partitionLaunches * launchBytes * sms;
  return { rowsPerBlock, blocks, partition: isPartitioned ? planPartition() : undefined };

  function planPartition(): Partition {
    const warps = (sms * threads) / warpSize;
    const segment = Math.max(Math.ceil(count / warps / warpSize) * warpSize, minSegment);
    return {
      rowsPerBucket: rowsPerBlock * Math.ceil(rowBlocks / buckets),
      segment,
      segments: Math.ceil(count / segment),
    };
  }
}

/** The bytes of the partition's buffers, all i32: counts, totals, starts, rows, positions. Empty without a partition. */
export function partitionBytes({ partition }: ScatterPlan, count: number): readonly number[] {
  if (!partition) return [];
  const elements = [buckets * partition.segments, buckets, buckets + 1, count, count];
  return elements.map((size) => size * dtypes.i32.bytes);
}
