/**
 * How a row kernel with column sums distributes its rows. A team of threads processes one row at a time. A block has one or more teams. With
 * T teams in all, team t processes the rows t, t + T, t + 2T and so on. Each block stores one partial sum per column, and a column kernel
 * reduces the partials.
 *
 * - If each team has a single row, its values are stored in shared memory, and the block sums them there.
 * - Otherwise teams loop over their rows and accumulate column sums in registers. A team is a warp, or a block if a row is too long for a
 *   warp.
 * - If no value depends on a whole row, the columns are divided into chunks, and each chunk has its own blocks.
 *
 * A column kernel adds row r to partial r mod 1024, then reduces the 1024 partials in a fixed binary tree. With T = 1024 a team's sum is
 * such a partial. A block has the partials of whole subtrees, so the result has the bits of a column kernel. With any other T, which follows
 * from the device, the additions have another order. Float32 does not allow that.
 */

import type { DeviceInfo } from "../../../driver/index.js";
import {
  dtypes,
  factsOf,
  type InputDtype,
  type Iteration,
  innerStrideOf,
  inputDtypes,
  type RowKernel,
} from "../../../ir/index.js";
import {
  bytesInFlightPerSm,
  maxRegisterBytes,
  maxSharedBytesPerBlock,
  maxThreadsPerBlock,
  registerBytes,
  registerBytesPerThread,
  type SharedMemoryFacts,
  warpSize,
} from "../../cost-model.js";
import type { Target } from "../../target.js";
import { maxPartials, mediumPartials } from "./column-config.js";

export interface ColumnSumTarget {
  readonly device: SharedMemoryFacts & Pick<DeviceInfo, "parallelism">;
  /** True if a sum needs the bits of a column kernel. */
  readonly keepsOrder: boolean;
}

/** In float32 a compiled step has the bits of an eager one. */
export function columnSumTarget({ device, settings }: Pick<Target, "device" | "settings">): {
  readonly device: DeviceInfo;
  readonly keepsOrder: boolean;
} {
  return { device, keepsOrder: settings.precision === "f32" };
}

export interface ColumnSumLayout {
  /** Threads of a team. */
  readonly lanes: number;
  /** A block has `rounds` teams for each of its `leaves` partials. It adds the teams' sums to their partials, then reduces these in a tree. */
  readonly rounds: number;
  readonly leaves: number;
  readonly threads: number;
  readonly blocksPerSm: number;
  /** Blocks along the rows: each stores one partial per column. */
  readonly blocks: number;
  /** Blocks along a row. */
  readonly chunks: number;
  /** The vectors of a row, or of a chunk, that a thread processes, and the number of columns in those of a team. */
  readonly vectors: number;
  readonly width: number;
  /** True if a team has several rows. */
  readonly isLoop: boolean;
  /** True if a thread keeps the vectors of all inputs in registers. */
  readonly isCached: boolean;
  /** Dynamic shared memory of a block. */
  readonly sharedBytes: number;
}

/** The number of blocks, and so of partials, in most layouts. */
export const defaultColumnPartials = mediumPartials;

/** Elements of a vector. */
const vectorWidth = 4;
/** The partials of a block of warps, if the order of additions is fixed and if it is free. The warps of a block are a multiple of it. */
const fixedLeaves = maxPartials / mediumPartials;
const anyLeaves = 4;
/** The maximum of resident blocks per SM in an elementwise kernel: they have half of the threads of an SM. */
const maxElementBlocks = 4;
/** The minimum of resident blocks per SM if a team is a block: one loads while the other reduces. */
const minRowBlocks = 2;

/**
 * How many bytes of its row a thread may keep in registers without spills, if each row has its own warp. One block is resident per SM: 768
 * threads have 340 bytes of registers each, and 1024 have 256. These are the largest values without spills, measured on an H200
 * (`bench/gpu/compiled.ts`, CrossAsset).
 */
function maxCachedBytes(threads: number): number {
  return registerBytesPerThread(threads) > 256 ? 240 : 128;
}

/** Registers of a loop over rows for addresses, counters and intermediate values: nvcc takes up to 32 for the gradient of a layer norm. */
const loopOverheadBytes = 40 * registerBytes;

/** The sizes that decide about a layout. */
interface Sizes {
  readonly rows: number;
  readonly columns: number;
  /** How many column sums there are. */
  readonly sums: number;
  /** Bytes of registers for the inputs that vary along a row, for each element. A number that is drawn takes a register. */
  readonly elementBytes: number;
}

/** Undefined if a row kernel cannot compute its column sums. `lanes`: the threads that reduce a row of its length. */
export function columnSumLayoutOf(
  target: ColumnSumTarget,
  kernel: RowKernel,
  iteration: Iteration,
  lanes: number,
): ColumnSumLayout | undefined {
  const { kind, row, rows } = iteration;
  const { outputs, stages } = kernel;
  const facts = factsOf(kernel);
  const sums = outputs.filter(({ per }) => per === "column");
  if (kind !== "rows" || facts.readsAtIndex || sums.some(({ dtype }) => dtype !== "f32")) return undefined;
  // With fewer rows the tree has fewer partials, and with fewer lanes a warp has several rows.
  if (rows < maxPartials || lanes < warpSize) return undefined;
  const elementBytes = facts.isReadDirectly.reduce((bytes, isRead, input) => {
    const varies = isRead && innerStrideOf(row, input) !== "none";
    return bytes + (varies ? facts.bytes[input] || registerBytes : 0);
  }, 0);
  const sizes: Sizes = { rows, columns: row.size, sums: sums.length, elementBytes };
  const isElementwise = stages.every(
    (stage) => stage.kind === "store" && outputs[stage.output]?.per !== "row",
  );
  const isWarp = lanes === warpSize;
  const loops = isElementwise
    ? elementLoops(target, sizes)
    : isWarp
      ? warpLoops(target, sizes)
      : blockLoops(target, sizes, lanes);
  const layouts = isWarp ? [rowPerWarp(sizes), ...loops] : loops;
  const limit = maxSharedBytesPerBlock(target.device);
  return layouts.find(
    (layout) => layout !== undefined && layout.blocksPerSm >= 1 && layout.sharedBytes <= limit,
  );
}

/** Each row has its own warp. */
function rowPerWarp(sizes: Sizes): ColumnSumLayout | undefined {
  const rounds = Math.ceil(sizes.rows / maxPartials);
  const threads = rounds * fixedLeaves * warpSize;
  const vectors = vectorsOf(sizes.columns, warpSize);
  if (threads > maxThreadsPerBlock || cachedBytesOf(sizes, vectors) > maxCachedBytes(threads))
    return undefined;
  return {
    ...teamsOf(sizes, warpSize, vectors, rounds, fixedLeaves),
    ...{ blocks: mediumPartials, chunks: 1, blocksPerSm: 1, isLoop: false, isCached: true },
  };
}

/** Warps loop over rows, with one block per SM and as many warps as registers allow. In a fixed order, each partial has one warp. */
function warpLoops({ device, keepsOrder }: ColumnSumTarget, sizes: Sizes): ColumnSumLayout[] {
  const vectors = vectorsOf(sizes.columns, warpSize);
  const blocks = keepsOrder ? mediumPartials : device.parallelism;
  const leaves = keepsOrder ? fixedLeaves : anyLeaves;
  const maxRounds = keepsOrder ? 1 : maxThreadsPerBlock / (leaves * warpSize);
  // A fixed number of blocks can be more than the device has SMs.
  const wantedBlocks = Math.ceil(blocks / device.parallelism);
  return [true, false].flatMap((isCached) =>
    Array.from({ length: maxRounds }, (_, index) => {
      const teams = teamsOf(sizes, warpSize, vectors, maxRounds - index, leaves);
      const blocksPerSm = Math.min(wantedBlocks, residentBlocks(sizes, teams, isCached));
      return { ...teams, blocks, chunks: 1, blocksPerSm, isLoop: true, isCached };
    }),
  );
}

/** Blocks loop over rows, as many as registers allow. Each thread has its own columns, so that nothing goes through shared memory. */
function blockLoops({ device, keepsOrder }: ColumnSumTarget, sizes: Sizes, lanes: number): ColumnSumLayout[] {
  const teams = { ...teamsOf(sizes, lanes, vectorsOf(sizes.columns, lanes), 1, 1), sharedBytes: 0 };
  return [true, false].flatMap((isCached) => {
    const blocksPerSm = residentBlocks(sizes, teams, isCached);
    const blocks = keepsOrder ? maxPartials : blocksPerSm * device.parallelism;
    return blocksPerSm < minRowBlocks
      ? []
      : [{ ...teams, blocks, chunks: 1, blocksPerSm, isLoop: true, isCached }];
  });
}

/** Warps loop over the rows of their chunk. The order is always fixed: chunks give enough blocks for any device. */
function elementLoops(target: ColumnSumTarget, sizes: Sizes): ColumnSumLayout[] {
  const layouts = [1, 2, 4].map((vectors): ColumnSumLayout => {
    const teams = teamsOf(sizes, warpSize, vectors, 1, fixedLeaves);
    const blocksPerSm = Math.min(maxElementBlocks, residentBlocks(sizes, teams, true));
    const chunks = Math.ceil(sizes.columns / teams.width);
    return { ...teams, blocks: mediumPartials, chunks, blocksPerSm, isLoop: true, isCached: true };
  });
  // The fewest vectors per thread that keep enough loads in flight come first, or those that keep the most.
  const bytesOf = (layout: ColumnSumLayout): number =>
    Math.min(bytesInFlightPerSm, loadsInFlight(target, layout, sizes.columns, sizes.elementBytes));
  return layouts.sort((a, b) => bytesOf(b) - bytesOf(a));
}

type Teams = Pick<
  ColumnSumLayout,
  "lanes" | "rounds" | "leaves" | "threads" | "vectors" | "width" | "sharedBytes"
>;

function teamsOf({ sums }: Sizes, lanes: number, vectors: number, rounds: number, leaves: number): Teams {
  const width = vectors * vectorWidth * lanes;
  const sharedBytes = sums * rounds * leaves * width * dtypes.f32.bytes;
  return { lanes, rounds, leaves, threads: rounds * leaves * lanes, vectors, width, sharedBytes };
}

function vectorsOf(columns: number, lanes: number): number {
  return Math.max(1, Math.ceil(columns / (vectorWidth * lanes)));
}

function cachedBytesOf({ elementBytes }: Sizes, vectors: number): number {
  return vectors * vectorWidth * elementBytes;
}

/** How many blocks with loops over rows an SM has registers for. */
function residentBlocks(sizes: Sizes, { threads, vectors }: Teams, isCached: boolean): number {
  const accumulators = sizes.sums * vectors * vectorWidth * dtypes.f32.bytes;
  const bytes = accumulators + (isCached ? cachedBytesOf(sizes, vectors) : 0) + loopOverheadBytes;
  return bytes > maxRegisterBytes ? 0 : Math.floor(registerBytesPerThread(threads) / bytes);
}

/** The bytes of loads that an SM has in flight on average: a team waits for those of its row half of the time. */
function loadsInFlight(
  { device: { parallelism } }: ColumnSumTarget,
  { blocks, chunks, blocksPerSm, threads, lanes, width }: ColumnSumLayout,
  columns: number,
  elementBytes: number,
): number {
  const waves = Math.ceil((blocks * chunks) / (Math.max(1, blocksPerSm) * parallelism));
  const teams = (blocks * chunks * (threads / lanes)) / (waves * parallelism);
  return (teams * Math.min(width, columns) * elementBytes) / 2;
}

/** How many times as long the kernel's memory traffic takes as with enough loads in flight. */
export function columnSumSlowdown(
  target: ColumnSumTarget,
  { inputs, outputs }: RowKernel,
  { row, outer }: Iteration,
  layout: ColumnSumLayout,
): number {
  if (!layout.isLoop) return 1;
  const bytesOf = (dtype: InputDtype, operand: number): number => {
    const varies = row.strides[operand] !== 0 && outer.some(({ strides }) => strides[operand] !== 0);
    return varies ? inputDtypes[dtype].bytes : 0;
  };
  const loaded = inputs.reduce((sum, dtype, input) => sum + bytesOf(dtype, input), 0);
  const stored = outputs.reduce((sum, { dtype }, output) => sum + bytesOf(dtype, inputs.length + output), 0);
  const needed = bytesInFlightPerSm * (loaded / Math.max(1, loaded + stored));
  return Math.max(1, needed / Math.max(1, loadsInFlight(target, layout, row.size, loaded)));
}
