/**
 * The tiles of the flash attention kernels, and their choice. A warp has `blocksM` blocks of 16 rows. Shared memory and registers limit a
 * tile: a lane holds accumulators of the scores and of the results. Larger tiles read shared memory less often.
 */

import type { FlashDropout } from "./dropout.js";
import { type FlashElement, flashElements, isScalar } from "./fragments.js";
import type { TileSource } from "./tiles.js";

export interface FlashTile {
  readonly warps: number;
  readonly blocksM: number;
  readonly tileN: number;
  /** Tiles in flight in the backward pass. */
  readonly stages: number;
}

/** Constants of a generated kernel. */
export interface FlashConfig<Name extends string = string> {
  readonly element: FlashElement;
  readonly tile: FlashTile;
  /** The width of queries and keys, and of values, rounded up to `depthUnit`. */
  readonly depth: number;
  readonly valueDepth: number;
  readonly isCausal: boolean;
  readonly hasMask: boolean;
  /** True if several heads of queries share a head of keys and values. */
  readonly isGrouped: boolean;
  readonly dropout: FlashDropout;
  readonly sources: Readonly<Record<Name, TileSource>>;
}

export function tileM({ warps, blocksM }: FlashTile): number {
  return 16 * blocksM * warps;
}

/** Two blocks of 8 columns, and the K of the longest instruction. */
export const depthUnit = 16;

export function depthOf(width: number): number {
  return Math.ceil(width / depthUnit) * depthUnit;
}

/** In the order of preference (measured on an H200 with widths of 64 and 128). */
const tiles: readonly FlashTile[] = [
  { warps: 4, blocksM: 1, tileN: 64, stages: 2 },
  { warps: 4, blocksM: 1, tileN: 32, stages: 2 },
  { warps: 4, blocksM: 1, tileN: 32, stages: 1 },
  { warps: 4, blocksM: 1, tileN: 16, stages: 1 },
  { warps: 2, blocksM: 1, tileN: 16, stages: 1 },
];

/** Registers of a lane's accumulators; addresses, fragments and statistics need the other registers of 255. */
const maxAccumulators = { mma: 192, fma: 160 } as const;

/** A lane holds half of a score or result of its row block: 16 × n elements over 32 lanes. Registers have four bytes. */
export function accumulatorsOf({ blocksM }: FlashTile, columns: number, element: FlashElement): number {
  return ((blocksM * columns) / 2) * (flashElements[element].type === "double" ? 2 : 1);
}

/**
 * The first tile whose shared memory and accumulators fit, and whose code is not too long for FMA. `columnsOf` counts the columns of all
 * accumulators of a row. Undefined if no tile fits.
 */
export function chooseTile(
  element: FlashElement,
  maxSharedBytes: number,
  sharedBytesOf: (tile: FlashTile) => number,
  columnsOf: (tile: FlashTile) => number,
): FlashTile | undefined {
  const [limit, maxTileN] = isScalar(element) ? [maxAccumulators.fma, 32] : [maxAccumulators.mma, Infinity];
  return tiles.find(
    (tile) =>
      tile.tileN <= maxTileN &&
      sharedBytesOf(tile) <= maxSharedBytes &&
      accumulatorsOf(tile, columnsOf(tile), element) <= limit,
  );
}
