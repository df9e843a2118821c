/**
 * How scatterAdd with an index per row runs on a CUDA device: one launch for a group of independent scatters, its members. A block owns some
 * rows of a member's target, and some of their columns. It needs the entries of its rows, in the order of the index:
 *
 * - It reads the whole index and selects them. This is one launch, but every block reads its member's index. The members share the blocks
 *   that the device holds at once, so a large group reads hardly more than a lone scatter.
 * - Or three launches partition the entries of all members by rows first, and a block reads one bucket. This pays off if the bytes that the
 *   blocks read take longer to read than three launches take.
 * - If a lone scatter has few rows with many entries each, one launch lists the entries of every row. Each of its blocks reads the whole
 *   index. See cuda-row-lists.ts.
 *
 * All of them add in the same order, so the selection changes no bits.
 */

import type { DeviceInfo } from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { launchBytes, warpSize } from "../cost-model.js";
import { threads } from "./cuda-columns.js";
import type { ScatterAdd } from "./problem.js";

export type ScatterSizes = Pick<ScatterAdd, "dtype" | "outer" | "length" | "inner" | "count" | "overwrites">;

/** The maximum number of rows of a block: each has a counter for every warp. */
export const maxRows = 1024;
/** Entries of a block on average, if it has several rows: a wait for memory serves some of them, so more would take longer. */
const entriesPerBlock = 512;
/** Bytes of a row that a block owns: whole sectors, and few enough that several SMs share the entries of one frequent row. */
const blockRowBytes = 256;
/** One thread per bucket. */
export const buckets = threads;
const partitionLaunches = 3;
/** Entries that a warp partitions, if there are few of them: four loads in flight per lane. */
const minSegment = 4 * warpSize;
/** Blocks of an SM: the registers and the shared memory of data centre GPUs suffice for them. */
export const residentBlocks = 4;

/** The columns of a block, if a row has as many. */
export const maxColumns = (dtype: ScatterAdd["dtype"]): number => blockRowBytes / dtypes[dtype].bytes;

export interface MemberPlan {
  readonly rowsPerBlock: number;
  readonly blocks: number;
  /** A multiple of the rows of a block, so that a block's entries are in one bucket. */
  readonly rowsPerBucket: number;
  /** The segments of its index, if it is partitioned. */
  readonly segments: number;
}

export interface ScatterPlan {
  readonly members: readonly MemberPlan[];
  /** "all": each block reads the whole index of its member. */
  readonly entries: "all" | "bucket" | "list";
  /** Entries of an index that a warp partitions. */
  readonly segment: number;
}

type Device = Pick<DeviceInfo, "parallelism">;

/** The plan of a group of scatters. */
export function planScatters(device: Device, shapes: readonly ScatterSizes[]): ScatterPlan {
  const sms = device.parallelism;
  const work = sumOf(shapes, elementsOf);
  const blocks = shapes.map((shape) => {
    const rowsPerBlock = rowsOfBlock(shape, (sms * residentBlocks * elementsOf(shape)) / work);
    return { rowsPerBlock, rowBlocks: Math.ceil(shape.length / rowsPerBlock) };
  });
  const warps = (sms * threads) / warpSize;
  const entries = sumOf(shapes, ({ count }) => count);
  const segment = Math.max(Math.ceil(entries / warps / warpSize) * warpSize, minSegment);
  const members = shapes.map((shape, index) => {
    const { rowsPerBlock = 1, rowBlocks = 1 } = blocks[index] ?? {};
    return {
      rowsPerBlock,
      blocks: shape.outer * rowBlocks * chunksOf(shape),
      rowsPerBucket: rowsPerBlock * Math.ceil(rowBlocks / buckets),
      segments: Math.ceil(shape.count / segment),
    };
  });
  return { members, entries: selectEntries(sms, shapes, members), segment };
}

/** The cheapest way to find the entries of a block, by the bytes that an SM could move meanwhile. */
function selectEntries(
  sms: number,
  shapes: readonly ScatterSizes[],
  members: readonly MemberPlan[],
): ScatterPlan["entries"] {
  const [shape] = shapes;
  const launch = launchBytes * sms;
  const all = shapes.reduce(
    (sum, { count }, index) => sum + (members[index]?.blocks ?? 0) * bytesOf(count),
    0,
  );
  const bucket = partitionLaunches * launch;
  const hasLists = shapes.length === 1 && shape && shape.count >= minListedEntries * shape.length;
  const list = hasLists ? launch + shape.length * bytesOf(shape.count) : Number.POSITIVE_INFINITY;
  const least = Math.min(all, bucket, list);
  return least === all ? "all" : least === list ? "list" : "bucket";
}

const bytesOf = (entries: number): number => entries * dtypes.i32.bytes;

/** Minimum of entries per row, on average, that keep a block of row lists busy: half of a round. */
const minListedEntries = 32;

/** Elements that a scatter moves: those of its entries, and the whole target if it is overwritten. */
function elementsOf({ outer, length, inner, count, overwrites = false }: ScatterSizes): number {
  return outer * inner * ((overwrites ? length : 0) + 2 * count);
}

export const chunksOf = ({ dtype, inner }: Pick<ScatterSizes, "dtype" | "inner">): number =>
  Math.ceil(inner / maxColumns(dtype));

/** As many rows as give a scatter this many blocks, but not too many entries for a block. */
function rowsOfBlock(shape: ScatterSizes, wantedBlocks: number): number {
  const { outer, length, count } = shape;
  const rows = Math.ceil((outer * length * chunksOf(shape)) / wantedBlocks);
  const rowsOfEntries = Math.floor((entriesPerBlock * length) / count);
  return Math.max(1, Math.min(rows, rowsOfEntries, length, maxRows));
}

/**
 * The sizes of the scratch buffers, all i32. A partition has counts, totals, starts, rows and positions of all members; row lists have
 * starts and positions.
 */
export function scatterBuffers(
  { members, entries }: ScatterPlan,
  shapes: readonly ScatterSizes[],
): readonly number[] {
  const count = sumOf(shapes, (shape) => shape.count);
  const segments = sumOf(members, (member) => member.segments);
  const sizes = {
    all: [],
    bucket: [buckets * segments, buckets * members.length, (buckets + 1) * members.length, count, count],
    list: [(shapes[0]?.length ?? 0) + 1, count],
  }[entries];
  return sizes.map((size) => size * dtypes.i32.bytes);
}

function sumOf<T>(list: readonly T[], of: (item: T) => number): number {
  return list.reduce((sum, item) => sum + of(item), 0);
}
