/** The CTA tiles of the native Hopper kernels. */

import { registersPerSm } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";

/** CTA tile shape, consumer warpgroups, and number of pipeline stages. */
export interface Sm90Tile {
  readonly tileM: number;
  readonly tileN: number;
  readonly stages: number;
  readonly warpgroupsM: number;
  readonly warpgroupsN: number;
  /** CTAs that share an SM, so that one multiplies while the other stores; default: 1. */
  readonly ctasPerSm?: 2;
  /** Split-K over the CTAs of a cluster: each accumulates its share of K. */
  readonly splitsK?: number;
  /** Computes Cᵀ = Bᵀ · Aᵀ: a warpgroup's 64 rows are columns of C, so that tileM can be any multiple of 8. */
  readonly swapsAB?: boolean;
  /**
   * A persistent kernel: each CTA computes several tiles. Its `warpgroupsM` warpgroups have a whole tile each and take turns, so that one
   * multiplies while the other runs its epilogue.
   */
  readonly isPingPong?: boolean;
}

/** Bytes of K in one stage of an operand: the width of the 128-byte swizzle. */
export const kTileBytes = 128;

/**
 * `large` is for small K; `paired` has two CTAs per SM, for long epilogues; `square` has more stages for large K; `small` is for results
 * with too few tiles of the others.
 */
export const tiles: Readonly<Record<"large" | "wide" | "paired" | "square" | "small" | "mmaSync", Sm90Tile>> =
  {
    large: { tileM: 192, tileN: 128, stages: 4, warpgroupsM: 3, warpgroupsN: 1 },
    wide: { tileM: 128, tileN: 256, stages: 4, warpgroupsM: 1, warpgroupsN: 2 },
    paired: { tileM: 128, tileN: 128, stages: 3, warpgroupsM: 2, warpgroupsN: 1, ctasPerSm: 2 },
    square: { tileM: 128, tileN: 128, stages: 6, warpgroupsM: 2, warpgroupsN: 1 },
    small: { tileM: 64, tileN: 128, stages: 4, warpgroupsM: 1, warpgroupsN: 2 },
    /** For the mma.sync mainloop, which needs several CTAs on an SM. */
    mmaSync: { tileM: 64, tileN: 64, stages: 4, warpgroupsM: 1, warpgroupsN: 1 },
  };

/** For TF32 weight gradients: A and B are MN-major and K is large. */
export const splitKTile: Sm90Tile = {
  tileM: 256,
  tileN: 128,
  stages: 4,
  warpgroupsM: 2,
  warpgroupsN: 1,
  splitsK: 2,
};

/**
 * For weight gradients of 16-bit floats. A warpgroup multiplies 64 × 256, so that wgmma reads less shared memory per operation than with
 * 128 columns: reads and TMA writes then take no longer than the multiplications.
 */
export const gradientTile: Sm90Tile = { tileM: 128, tileN: 256, stages: 4, warpgroupsM: 2, warpgroupsN: 1 };

/** For epilogues of 16-bit floats. `stages`: the maximum, because epilogues need more or less shared memory. */
export const pingPongTile: Sm90Tile = {
  ...{ tileM: 128, tileN: 128, stages: 6, warpgroupsM: 2, warpgroupsN: 1, isPingPong: true },
};

/** Half of an SM's registers can hold accumulators; the rest is for addresses and the epilogue. */
const maxAccumulators = registersPerSm / 2;
/** The largest N of one wgmma instruction. */
const maxMmaN = 256;

/**
 * The swapAB tile that covers C in a single wave (at most one CTA per SM) and loads the least. Undefined if every such tile would exceed
 * the accumulator registers.
 */
export function singleWaveTile(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  sms: number,
): Sm90Tile | undefined {
  let best: Sm90Tile | undefined;
  for (let tileN = 64; tileN <= maxMmaN && tileN - 64 < n; tileN += 64) {
    const tilesM = Math.floor(sms / (batch * Math.ceil(n / tileN)));
    const tileM = 8 * Math.ceil(m / (8 * tilesM));
    if (tileM > maxMmaN || tileM * tileN > maxAccumulators) continue;
    if (best && tileM + tileN >= best.tileM + best.tileN) continue;
    best = { tileM, tileN, stages: 8, warpgroupsM: 1, warpgroupsN: tileN / 64, swapsAB: true };
  }
  return best;
}

/** Minimum ratio of computed to needed columns at which a tile of fewer columns pays off. */
const minWastedColumns = 8 / 7;

/**
 * A tile whose N is fitted to the columns of C, in steps of eight. It is for a C that leaves much of its last 128-column tile empty, such as
 * 65 or 10 classes. Two CTAs share an SM, so that one loads while the other stores. Undefined if
 * 128 columns fit.
 */
export function fittedTile(problem: Pick<GemmDesc, "m" | "n" | "batch">, sms: number): Sm90Tile | undefined {
  const tilesN = Math.ceil(problem.n / tiles.paired.tileN);
  const tileN = 8 * Math.ceil(problem.n / (8 * tilesN));
  if (tileN * minWastedColumns > tiles.paired.tileN) return undefined;
  const tile: Sm90Tile = { ...tiles.paired, tileN, stages: 4 };
  const isSmall = countCtas(problem, tile) < sms / 2;
  return isSmall ? { ...tile, tileM: tile.tileM / 2, warpgroupsM: 1 } : tile;
}

/** N of a warpgroup's wgmma instruction. */
export function mmaNOf({ tileM, tileN, warpgroupsN, swapsAB }: Sm90Tile): number {
  return swapsAB ? tileM : tileN / warpgroupsN;
}

/** K that all stages of the CTAs of one tile hold together. */
export function pipelineK({ stages, splitsK = 1 }: Sm90Tile, elementBytes: number): number {
  return stages * (kTileBytes / elementBytes) * splitsK;
}

/** The elements of C in units of a tile: less than the number of CTAs if tiles cross C's edge. */
export function sizeInTiles(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { tileM, tileN }: Sm90Tile,
): number {
  return (m * n * batch) / (tileM * tileN);
}

/** The number of CTAs that compute C. */
export function countCtas(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { tileM, tileN, splitsK = 1 }: Sm90Tile,
): number {
  return Math.ceil(m / tileM) * Math.ceil(n / tileN) * batch * splitsK;
}
