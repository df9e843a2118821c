/**
 * The cost model: the thresholds of the passes, in units of the work that a device does during one launch. A threshold
 * that grows with the device is a function of its number of multiprocessors. The times are estimates; `npm run
 * bench:gpu` shows the effect of a change.
 */

import type { DeviceInfo } from "../driver/index.js";
import { launchBytes } from "../kernels/index.js";
import type { ScheduleOptions } from "./schedule/schedule.js";

type Device = Pick<DeviceInfo, "parallelism">;

/**
 * A kernel that takes as long as this many launches gains nothing from a combo kernel: two such kernels would only wait
 * for each other.
 */
const longKernel = 2;

/**
 * Output elements at which a GEMM keeps the device busy: two thirds of a 128 × 128 tile for every multiprocessor. With fewer, more than a
 * third of the multiprocessors have no tile.
 */
export const busyGemmElements = ({ parallelism }: Device): number => 11_000 * parallelism;

/**
 * A batched GEMM has at most this many times the output elements that keep the device busy. One launch then costs it little, and more
 * results would only be held longer.
 */
export const maxBatchedWaves = 4;

/** The elements of a DMMA tile, and the maximum idle share of a group's time. */
const exactTileElements = 64 * 64;
const maxIdleShare = 1 / 16;

/** True if the last wave leaves more than `maxIdleShare` of the time of an exact grouped GEMM idle. All tiles take the same time. */
export function hasIdleWave({ parallelism }: Device, elements: number): boolean {
  const waves = elements / (exactTileElements * parallelism);
  return Math.ceil(waves) - waves > maxIdleShare * waves;
}

/** With eight members, a launch costs each of them an eighth; more would only hold operands longer. */
export const maxGroupedGemms = 8;

/**
 * Input bytes at which column reductions keep the device busy: sixteen launches' worth for each multiprocessor. A group waits for its
 * last operand, and its first operands leave the cache meanwhile, so more would cost more than the launches it saves.
 */
export const busyReductionBytes = ({ parallelism }: Device): number => 16 * launchBytes * parallelism;

/** Reductions hold less memory than GEMMs while they wait, so half as many again may share a launch. */
export const maxGroupedReductions = 12;

/** As for GEMMs. The code of all members is compiled into one kernel, so more would also cost compile time and registers. */
export const maxComboKernels = 8;

export interface ComboLimits {
  /** Memory traffic that takes as long as a launch. */
  readonly launchTraffic: number;
  /** Memory traffic at which a kernel keeps the device busy by itself. */
  readonly largeBytes: number;
  /** Elements at which a row reduction needs all registers of its launch: one warp's row of 8 elements for each multiprocessor. */
  readonly maxReducedElements: number;
  /** Longer rows are held in registers: a thread of a 32-thread row then has more than 8 elements. */
  readonly maxHeldRow: number;
}

export const comboLimits = ({ parallelism }: Device): ComboLimits => ({
  launchTraffic: launchBytes * parallelism,
  largeBytes: longKernel * launchBytes * parallelism,
  maxReducedElements: 256 * parallelism,
  maxHeldRow: 256,
});

/**
 * The additional launches of compact rows: three for the row maps, and for each reader one per run of neighbouring tables. The reader handles the
 * memory between runs in separate launches.
 */
export const compactRowsLaunches = (readers: number, runs: number): number => 3 + readers * runs;

/** How many bytes may live longer for a moved launch: as many as 64 multiprocessors move during a launch. */
export const maxHeldBytes = 64 * launchBytes;

/** Copies up to this size are batched: larger ones take longer than a launch on 64 multiprocessors, and waiting only holds memory. */
export const maxBatchedCopyBytes = 64 * launchBytes;

/**
 * A split-off output, and each call on the way to it, moves at most as many bytes as four multiprocessors move during a
 * launch.
 */
export const maxHoistedBytes = 4 * launchBytes;

/** Hoisting shortens the wait by at least this many dependent launches: fewer would not pay for the extra launch. */
export const minHoistedCalls = 4;

/** Floating-point operations that a GEMM on tensor cores does per byte of memory traffic: 150 to 300 from A100 to H200. */
const gemmFlopsPerByte = 256;

/** The elements of a tile of C, and the waves of tiles after which a partly filled last one costs little. */
const tileElements = 128 * 128;
const fullWaves = 8;

/**
 * Output elements from which a GEMM with an epilogue is measured, alone and fused: two waves of tiles. With fewer, launches and waits
 * decide, which a trial does not show.
 */
export const minMeasuredElements = ({ parallelism }: Device): number => 2 * tileElements * parallelism;

/**
 * Minimum multiply-adds of an exact GEMM whose tiles are measured: 2 µs on every multiprocessor, at 128 per cycle and 2 GHz. Latency
 * dominates smaller GEMMs.
 */
export const minMeasuredProducts = ({ parallelism }: Device): number => 512 * 1024 * parallelism;

export interface TilingLimits {
  /** Chunks begin at multiples of this: the rows of a tile, so that no chunk but the last has a partly filled one. */
  readonly rowAlignment: number;
  /** Rows of a chunk. Each chunk reads the other operand again: 2 · rows · n · k operations for at most 2 · n · k bytes of 16-bit weights. */
  readonly minRows: number;
  /** Rows of a chunk, if there are enough for two: four times as many, because the chunk's own rows need bandwidth too. */
  readonly preferredRows: number;
  /** With sums over rows. Each chunk reads and writes the f32 sum: twice as many rows as give both the same time, to overlap them. */
  readonly minSummedRows: number;
  /** Elements of a chunk of the GEMM's result. */
  readonly minElements: number;
  /** Tiling lowers the memory peak by at least this share: less does not pay for launches and traffic. */
  readonly minShare: number;
}

export const tilingLimits = ({ parallelism }: Device): TilingLimits => ({
  rowAlignment: 128,
  minRows: gemmFlopsPerByte,
  preferredRows: 4 * gemmFlopsPerByte,
  minSummedRows: 2 * 4 * gemmFlopsPerByte,
  minElements: fullWaves * tileElements * parallelism,
  minShare: 1 / 8,
});

/** A result is kept in chunks if it has at least this share of the bytes of the GEMM's: others change the peak little. */
export const minIntermediateShare = 1 / 4;

/** Weights start to be transposed this many calls before their first reader: enough launches to hide the transposition. */
export const transposeLead = 3;

/**
 * The minimum share of needed bytes in the bytes that coalesced casts read. Below it, the other bytes cost more than
 * the saved launches.
 */
export const minWantedShare = 0.6;

/** Minimum multiply-adds of a GEMM for which aligned rows matter. A smaller one takes about as long as a launch. */
export const minPaddedMacs = 1 << 24;

/** Padding may add this share to the elements that a GEMM reads and writes. */
export const maxPaddingShare = 1 / 8;

/** Rematerialising a value that is smaller than this share of the peak does not change the peak noticeably. */
export const minRematerializedShare = 0.01;

/** A value that is read again within this many calls is kept: recomputing it would not free its memory at the peak. */
export const minRematerializedGap = 12;

/** Rounds of rematerialisation: each one lowers the peak or is the last. */
export const maxRematerializeRounds = 4;

/** On a GPU, recomputing has to lower the memory peak by this share: less does not pay for the traffic. */
export const minRecomputedShare = 1 / 12;

/** Single outputs of kernels are recomputed until the memory peak is lower by this share. Each costs at least one more store. */
export const recomputedOutputShare = 1 / 16;

/** How many calls the first reader of a recomputed value may wait, to follow a kernel that computes the value in passing. */
export const maxReaderDelay = 8;

/**
 * PDL credit for native GEMMs: isolated timing misses the launch overlap that cuBLASLt kernels lack. The value is from
 * A/B runs of a bf16 training step on an H200. It is less than a launch, because the wait itself remains.
 */
export const pdlCreditUs = 1.2;

/** Timings this close are equal within the noise of a measurement. */
export const timingTolerance = 1.02;

/**
 * Side streams. Three overlap with the main stream before kernels only queue for the same multiprocessors. A call needs a slack of two
 * launches, one to fork and one to join. `lag` bounds how long a side call may hold its operands: as many launches as a grouped launch
 * has members, so that a whole group of side work can overlap with the main stream.
 */
const sideStreams = { streams: 3, slack: 2, lag: maxGroupedGemms } as const;

/** The schedules with side streams that a GPU tries. */
export const streamOptions = {
  streams: sideStreams,
  "low-priority streams": { ...sideStreams, isMainFirst: true },
} as const satisfies Readonly<Record<string, ScheduleOptions>>;
