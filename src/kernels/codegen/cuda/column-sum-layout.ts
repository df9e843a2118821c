/**
 * How a row kernel with column sums distributes its rows. A team of threads processes one row at a time: a warp, or several warps if a
 * warp has no registers for its columns of all sums. A block has one or more teams. With T teams in all, team t processes the rows t, t + T,
 * t + 2T and so on. Each block stores one partial sum per column, and a column kernel reduces the partials.
 *
 * - If each team has a single row, its values are stored in shared memory, and the block sums them there.
 * - Otherwise teams loop over their rows and accumulate column sums in registers.
 * - If no value depends on a whole row, the columns are divided into chunks, and each chunk has its own blocks.
 *
 * A column kernel adds row r to partial r mod 1024, then reduces the 1024 partials in a fixed binary tree. With T = 1024 a team's sum is
 * such a partial. A block has the partials of whole subtrees, so the result has the bits of a column kernel. With any other T, which follows
 * from the device, the additions have another order. A row's own sum has another order in a team of another size. Float32 allows neither.
 */

import type { DeviceInfo } from "../../../driver/index.js";
import {
  dtypes,
  factsOf,
  type InputDtype,
  type Iteration,
  inputDtypes,
  type RowKernel,
} from "../../../ir/index.js";
import {
  bytesInFlightPerSm,
  maxRegisterBytes,
  maxSharedBytesPerBlock,
  maxThreadsPerBlock,
  registerBytesPerThread,
  type SharedMemoryFacts,
  threadsWithRegisters,
  trafficUs,
  warpSize,
} from "../../cost-model.js";
import type { Target } from "../../target.js";
import { maxPartials, mediumPartials } from "./column-config.js";
import { type RowLoopWork, registerBytesOf, rowLoopUs, rowLoopWorkOf } from "./row-loop-time.js";
import { vectorWidth } from "./vector-alignment.js";

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
  /** How many of them, from the last one on, may begin after the end of the row. */
  readonly checkedVectors: number;
  /** True if a team has several rows. */
  readonly isLoop: boolean;
  /** True if a thread keeps the vectors of all inputs in registers. */
  readonly isCached: boolean;
  /** True if a team loads its next row before it processes the present one. Default: false. */
  readonly isPrefetched?: boolean;
  /** Dynamic shared memory of a block. */
  readonly sharedBytes: number;
}

/** The number of blocks, and so of partials, in most layouts. */
export const defaultColumnPartials = mediumPartials;

/** Threads of a team, if the order of additions is free. */
const teamSizes = [32, 64, 128, 256, 512, 1024] as const;
/** The partials of a block of warps, if the order of additions is fixed and if it is free. The warps of a block are a multiple of it. */
const fixedLeaves = maxPartials / mediumPartials;
const anyLeaves = 4;
/** The maximum of resident blocks per SM in an elementwise kernel: they have half of the threads of an SM. */
const maxElementBlocks = 4;
/** The minimum of resident blocks per SM if a team is a block in a fixed order: one loads while the other reduces. */
const minRowBlocks = 2;
/** The hardware's barriers for a part of a block: 1 to 15. */
const maxNamedBarriers = 15;
/** Shared memory for the reductions of a row: a few of them, of a few values per warp. */
const maxReductionBytes = 2048;
/** The share of a team's lanes that have an element of the last vector, at least on average over the vectors. */
const minLaneUse = 0.75;

/**
 * How many bytes of its row a thread may keep in registers without spills, if each row has its own warp. One block is resident per SM: 768
 * threads have 340 bytes of registers each, and 1024 have 256. These are the largest values without spills, measured on an H200
 * (`bench/gpu/compiled.ts`, CrossAsset).
 */
function maxCachedBytes(threads: number): number {
  return registerBytesPerThread(threads) > 256 ? 240 : 128;
}

/**
 * The ways in which a row kernel can compute its column sums, the fastest one by its estimate first; none if it cannot. `lanes`: the threads
 * that reduce a row of its length.
 */
export function columnSumLayoutsOf(
  target: ColumnSumTarget,
  kernel: RowKernel,
  iteration: Iteration,
  lanes: number,
): readonly ColumnSumLayout[] {
  const { kind, rows } = iteration;
  const sums = kernel.outputs.filter(({ per }) => per === "column");
  if (kind !== "rows" || factsOf(kernel).readsAtIndex || sums.some(({ dtype }) => dtype !== "f32")) return [];
  // With fewer rows the tree has fewer partials, and with fewer lanes a warp has several rows.
  if (rows < maxPartials || lanes < warpSize) return [];
  const sizes = rowLoopWorkOf(kernel, iteration);
  const loops = isElementwise(kernel) ? elementLoops(target, sizes) : rowLoops(target, sizes, lanes);
  const layouts = lanes === warpSize ? [...rowPerWarp(sizes), ...loops] : loops;
  const limit = maxSharedBytesPerBlock(target.device);
  return layouts.filter(({ blocksPerSm, sharedBytes }) => blocksPerSm >= 1 && sharedBytes <= limit);
}

/** True if no value depends on a whole row. */
function isElementwise({ stages, outputs }: RowKernel): boolean {
  return stages.every((stage) => stage.kind === "store" && outputs[stage.output]?.per !== "row");
}

/** Each row has its own warp. */
function rowPerWarp(sizes: RowLoopWork): readonly ColumnSumLayout[] {
  const rounds = Math.ceil(sizes.rows / maxPartials);
  const threads = rounds * fixedLeaves * warpSize;
  const vectors = vectorsOf(sizes.columns, warpSize);
  const cachedBytes = vectors * vectorWidth * sizes.elementBytes;
  if (threads > maxThreadsPerBlock || cachedBytes > maxCachedBytes(threads)) return [];
  return [
    {
      ...teamsOf(sizes, warpSize, vectors, rounds, fixedLeaves),
      ...{ blocks: mediumPartials, chunks: 1, blocksPerSm: 1, isLoop: false, isCached: true },
    },
  ];
}

/** How a thread gets the vectors of its rows. */
const loadModes = [
  { isCached: true, isPrefetched: true },
  { isCached: true, isPrefetched: false },
  { isCached: false, isPrefetched: false },
] as const;

type LoadMode = (typeof loadModes)[number];

/** Teams loop over rows: the layouts with the shortest estimated times come first. */
function rowLoops(target: ColumnSumTarget, sizes: RowLoopWork, lanes: number): readonly ColumnSumLayout[] {
  const loopsIn = (mode: LoadMode): readonly ColumnSumLayout[] => {
    if (!target.keepsOrder) return teamSizes.flatMap((lanes) => anyTeams(target, sizes, lanes, mode));
    return lanes === warpSize ? warpTeams(target, sizes, mode) : blockTeams(sizes, lanes, mode);
  };
  const timed = loadModes.flatMap((mode) =>
    loopsIn(mode).map((layout) => ({ layout, us: loopUs(target, sizes, layout) })),
  );
  return timed.sort((a, b) => a.us - b.us).map(({ layout }) => layout);
}

/**
 * Teams of any size, in one block per SM with as few of them as process the rows in the fewest rounds. So each thread gets as many registers
 * as possible.
 */
function anyTeams(
  { device }: ColumnSumTarget,
  sizes: RowLoopWork,
  lanes: number,
  mode: LoadMode,
): readonly ColumnSumLayout[] {
  const blocks = device.parallelism;
  const vectors = vectorsOf(sizes.columns, lanes);
  if (lanes > warpSize && sizes.columns < minLaneUse * vectors * vectorWidth * lanes) return [];
  const max = Math.min(
    lanes > warpSize ? maxNamedBarriers : Infinity,
    maxTeams(sizes, lanes, vectors, mode),
    sharedTeams(device, sizes, vectors * vectorWidth * lanes),
  );
  if (max < 1) return [];
  const rounds = Math.ceil(sizes.rows / (blocks * max));
  const teams = Math.ceil(sizes.rows / (blocks * rounds));
  const leaves = teams % anyLeaves === 0 ? anyLeaves : 1;
  return [
    {
      ...teamsOf(sizes, lanes, vectors, teams / leaves, leaves),
      ...{ blocks, chunks: 1, blocksPerSm: 1, isLoop: true, ...mode },
    },
  ];
}

/** In a fixed order, each partial has one warp. */
function warpTeams({ device }: ColumnSumTarget, sizes: RowLoopWork, mode: LoadMode): ColumnSumLayout[] {
  const blocks = mediumPartials;
  const teams = teamsOf(sizes, warpSize, vectorsOf(sizes.columns, warpSize), 1, fixedLeaves);
  // These can be more blocks than the device has SMs.
  const wantedBlocks = Math.ceil(blocks / device.parallelism);
  const blocksPerSm = Math.min(wantedBlocks, residentBlocks(sizes, teams, mode));
  return blocksPerSm < 1 ? [] : [{ ...teams, blocks, chunks: 1, blocksPerSm, isLoop: true, ...mode }];
}

/** In a fixed order, each partial has one block. Each thread has its own columns, so that nothing goes through shared memory. */
function blockTeams(sizes: RowLoopWork, lanes: number, mode: LoadMode): ColumnSumLayout[] {
  const teams = teamsOf(sizes, lanes, vectorsOf(sizes.columns, lanes), 1, 1);
  const blocksPerSm = residentBlocks(sizes, teams, mode);
  return blocksPerSm < minRowBlocks
    ? []
    : [{ ...teams, blocks: maxPartials, chunks: 1, blocksPerSm, isLoop: true, ...mode }];
}

/** The estimated time of a loop over rows, if memory has enough bandwidth. */
function loopUs(
  { device: { parallelism } }: ColumnSumTarget,
  sizes: RowLoopWork,
  layout: ColumnSumLayout,
): number {
  const { blocks, blocksPerSm, threads, lanes } = layout;
  const teams = threads / lanes;
  const waves = Math.ceil(blocks / (blocksPerSm * parallelism));
  const rowsPerTeam = sizes.rows / (blocks * teams);
  return rowLoopUs(sizes, layout, {
    teamsPerSm: teams * Math.min(blocksPerSm, Math.ceil(blocks / parallelism)),
    // Over several waves, blocks with fewer rows make up for those with more.
    rowsPerTeam: waves === 1 ? Math.ceil(rowsPerTeam) : waves * rowsPerTeam,
  });
}

/** Warps loop over the rows of their chunk. The order is always fixed: chunks give enough blocks for any device. */
function elementLoops(target: ColumnSumTarget, sizes: RowLoopWork): ColumnSumLayout[] {
  const mode = { isCached: true };
  const layouts = [1, 2, 4].map((vectors): ColumnSumLayout => {
    const teams = teamsOf(sizes, warpSize, vectors, 1, fixedLeaves);
    const blocksPerSm = Math.min(maxElementBlocks, residentBlocks(sizes, teams, mode));
    const chunks = Math.ceil(sizes.columns / teams.width);
    return { ...teams, blocks: mediumPartials, chunks, blocksPerSm, isLoop: true, ...mode };
  });
  // The fewest vectors per thread that keep enough loads in flight come first, or those that keep the most.
  const bytesOf = (layout: ColumnSumLayout): number =>
    Math.min(bytesInFlightPerSm, loadsInFlight(target, layout, sizes.columns, sizes.elementBytes));
  return layouts.sort((a, b) => bytesOf(b) - bytesOf(a));
}

type Teams = Pick<
  ColumnSumLayout,
  "lanes" | "rounds" | "leaves" | "threads" | "vectors" | "width" | "checkedVectors" | "sharedBytes"
>;

/** A block of one team stores its sums itself; several add them up in shared memory. */
function teamsOf(
  { sums, columns }: RowLoopWork,
  lanes: number,
  vectors: number,
  rounds: number,
  leaves: number,
): Teams {
  const width = vectors * vectorWidth * lanes;
  const teams = rounds * leaves;
  const sharedBytes = teams === 1 ? 0 : sums * teams * width * dtypes.f32.bytes;
  const checkedVectors = columns % width === 0 ? 0 : columns < width ? 1 : vectors;
  return { lanes, rounds, leaves, threads: teams * lanes, vectors, width, checkedVectors, sharedBytes };
}

function vectorsOf(columns: number, lanes: number): number {
  return Math.max(1, Math.ceil(columns / (vectorWidth * lanes)));
}

type Registers = Pick<ColumnSumLayout, "isCached" | "isPrefetched">;

/** How many blocks with loops over rows an SM has registers for. */
function residentBlocks(sizes: RowLoopWork, { threads, lanes, vectors }: Teams, mode: Registers): number {
  const bytes = registerBytesOf(sizes, { lanes, vectors, ...mode });
  return bytes > maxRegisterBytes ? 0 : Math.floor(registerBytesPerThread(threads) / bytes);
}

/** How many teams a block has shared memory for, besides the few values of each reduction. */
function sharedTeams(device: SharedMemoryFacts, { sums }: RowLoopWork, width: number): number {
  const available = maxSharedBytesPerBlock(device) - maxReductionBytes;
  return Math.max(1, Math.floor(available / (sums * width * dtypes.f32.bytes)));
}

/** How many teams a block has registers for, if it is the only one on its SM. */
function maxTeams(sizes: RowLoopWork, lanes: number, vectors: number, mode: Registers): number {
  const bytes = registerBytesOf(sizes, { lanes, vectors, ...mode });
  if (bytes > maxRegisterBytes) return 0;
  return Math.floor(Math.min(maxThreadsPerBlock, threadsWithRegisters(bytes)) / lanes);
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

/** The estimated time of a kernel whose teams loop over rows, if memory has enough bandwidth. */
export function loopUsOf(
  target: ColumnSumTarget,
  kernel: RowKernel,
  iteration: Iteration,
  layout: ColumnSumLayout,
): number {
  return loopUs(target, rowLoopWorkOf(kernel, iteration), layout);
}

/** How many times as long the kernel's memory traffic takes as with enough loads in flight. */
export function columnSumSlowdown(
  target: ColumnSumTarget,
  kernel: RowKernel,
  iteration: Iteration,
  layout: ColumnSumLayout,
): number {
  if (!layout.isLoop) return 1;
  const { inputs, outputs } = kernel;
  const { row, rows, outer } = iteration;
  const bytesOf = (dtype: InputDtype, operand: number): number => {
    const varies = row.strides[operand] !== 0 && outer.some(({ strides }) => strides[operand] !== 0);
    return varies ? inputDtypes[dtype].bytes : 0;
  };
  const loaded = inputs.reduce((sum, dtype, input) => sum + bytesOf(dtype, input), 0);
  const stored = outputs.reduce((sum, { dtype }, output) => sum + bytesOf(dtype, inputs.length + output), 0);
  if (!isElementwise(kernel)) {
    const memoryUs = trafficUs(target.device, rows * row.size * (loaded + stored));
    return Math.max(1, loopUsOf(target, kernel, iteration, layout) / memoryUs);
  }
  const needed = bytesInFlightPerSm * (loaded / Math.max(1, loaded + stored));
  return Math.max(1, needed / Math.max(1, loadsInFlight(target, layout, row.size, loaded)));
}
