/**
 * The tiles of flash attention on Hopper's `wgmma`. A block has some consumer warpgroups, and usually one producer warpgroup, which loads
 * tiles by TMA. A consumer has 64 rows of the tile that stays; the tiles of the other side are visited through a ring of stages.
 */

import { registersPerSm } from "../../../cost-model.js";
import type { FlashDropout } from "../flash/dropout.js";

export type HalfElement = "bf16" | "f16";

export interface Sm90FlashTile {
  /** Consumer warpgroups, with 64 rows each. */
  readonly warpgroups: number;
  /** Rows of a visited tile. */
  readonly tileN: number;
  readonly stages: number;
  readonly blocksPerSm: number;
  /**
   * True if a thread of the only consumer warpgroup loads tiles, between products, so that more blocks fit on an SM. Default: a producer
   * warpgroup loads them.
   */
  readonly loadsOwnTiles?: boolean;
}

/**
 * How kernels read an additive mask: one for all queries ("keys"); or one for each score, element by element, or two neighbouring columns at
 * once. The columns of the latter are contiguous.
 */
export type Sm90Mask = "none" | "keys" | "elements" | "pairs";

/** Constants of a generated kernel. */
export interface Sm90FlashConfig {
  readonly element: HalfElement;
  readonly tile: Sm90FlashTile;
  /** Widths of queries and keys, and of values: multiples of `widthUnit`. */
  readonly width: number;
  readonly valueWidth: number;
  readonly isCausal: boolean;
  /** True if several heads of queries share a head of keys and values. */
  readonly isGrouped: boolean;
  readonly dropout: FlashDropout;
  readonly mask: Sm90Mask;
  readonly access: "out" | "partial-out";
}

/** The side of the attention matrix whose tile stays in a block. */
export type Side = "rows" | "columns";

export interface Sm90BackwardTile extends Sm90FlashTile {
  /** Side "columns": dV is multiplied while the gradients of the scores are computed, which needs more registers. */
  readonly issuesEarly: boolean;
  /** True if a tile's products are complete before those of the next begin, which needs fewer registers. */
  readonly drains: boolean;
}

export interface Sm90BackwardConfig extends Sm90FlashConfig {
  readonly tile: Sm90BackwardTile;
  readonly side: Side;
}

/** K of one instruction: a product over a width has no remainder. */
export const widthUnit = 16;

export const warpgroupRows = 64;
const warpgroupThreads = 128;

export function tileM({ warpgroups }: Sm90FlashTile): number {
  return warpgroupRows * warpgroups;
}

export function consumersOf({ warpgroups }: Sm90FlashTile): number {
  return warpgroupThreads * warpgroups;
}

/** Threads of a block: the consumers, then the producer warpgroup. */
export function threadsOf(tile: Sm90FlashTile): number {
  return consumersOf(tile) + (tile.loadsOwnTiles ? 0 : warpgroupThreads);
}

/** setmaxnreg counts registers in this unit. */
const registerUnit = 8;
/** The largest number of registers that setmaxnreg can ask for in a multiple of its unit, with a margin for the ABI. */
const maxRegisters = 240;

/** Registers of a thread by role. A producer gives some of those that a block starts with to the consumers. */
export function registersOf(
  tile: Sm90FlashTile,
  producer = tile.warpgroups > 2 ? 32 : 24,
): { consumer: number; producer: number } {
  const roundDown = (count: number): number => Math.floor(count / registerUnit) * registerUnit;
  const { warpgroups, blocksPerSm, loadsOwnTiles } = tile;
  const atStart = roundDown(registersPerSm / blocksPerSm / threadsOf(tile));
  if (loadsOwnTiles) return { producer: 0, consumer: Math.min(maxRegisters, atStart) };
  const pool = atStart * (warpgroups + 1);
  return { producer, consumer: Math.min(maxRegisters, roundDown((pool - producer) / warpgroups)) };
}

/** Rows of a tile in shared memory are boxes of 128 bytes. */
export function tileBytes(rows: number, width: number): number {
  return Math.ceil(width / 64) * rows * 128;
}
