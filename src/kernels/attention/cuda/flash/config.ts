/**
 * The tiles of the flash attention kernels. A warp has `blocksM` blocks of 16 rows. Registers limit the size of a tile: a lane holds the
 * accumulators of the scores and of the result.
 */

import type { MmaElement } from "../../../codegen/cuda/intrinsics/wgmma.js";
import type { TileSource } from "./tiles.js";

export interface FlashTile {
  readonly warps: number;
  readonly blocksM: number;
  readonly tileN: number;
}

/** Constants of a generated kernel. */
export interface FlashConfig<Name extends string = string> {
  readonly element: MmaElement;
  readonly tile: FlashTile;
  /** The width of queries and keys, and of values, rounded up to whole instructions. */
  readonly depth: number;
  readonly valueDepth: number;
  readonly isCausal: boolean;
  readonly hasMask: boolean;
  readonly hasDropout: boolean;
  readonly sources: Readonly<Record<Name, TileSource>>;
}

export function tileM({ warps, blocksM }: FlashTile): number {
  return 16 * blocksM * warps;
}

/** Operands are padded to this many elements: two blocks of 8 columns, or one instruction along K. */
export const depthUnit = 16;

export function depthOf(width: number): number {
  return Math.ceil(width / depthUnit) * depthUnit;
}
