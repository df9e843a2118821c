/** CTA tiles of the channels-last convolutions, and their shared memory. */

import { maxSharedBytesPerBlock } from "../../../cost-model.js";
import { sm90Capability } from "../../../gemm/sm90/index.js";

/** A CTA computes tileM × tileN results. Its warpgroups divide them; each has 64 · mmaM rows and one wgmma's columns. */
export interface ChannelsLastTile {
  readonly tileM: number;
  readonly tileN: number;
  readonly warpgroupsM: number;
  readonly warpgroupsN: number;
  readonly stages: number;
  /** k-tiles whose wgmmas may be in flight while the next one starts: 0, or 1, which takes one stage of shared memory. */
  readonly overlap: 0 | 1;
}

/** Bytes of K of a k-tile: the width of the 128-byte swizzle. */
export const kTileBytes = 128;
/** The swizzle follows address bits. */
export const smemAlignment = 1024;

export function threadsOf({ warpgroupsM, warpgroupsN }: ChannelsLastTile): number {
  return 128 * warpgroupsM * warpgroupsN;
}

/** Rows of C in a row of the staged results: padded against bank conflicts. */
export const stagedPadding = 8;

/** k-tiles of transposed operands: one is written while the other is still read. */
export const transposedStages = 2;

/** `transposes`: operands are transposed in shared memory. */
export function sharedBytesOf(
  { tileM, tileN, stages }: ChannelsLastTile,
  resultBytes: number,
  transposes = false,
): number {
  const stageBytes = (stages + (transposes ? transposedStages : 0)) * (tileM + tileN) * kTileBytes;
  return smemAlignment + Math.max(stageBytes, tileM * (tileN + stagedPadding) * resultBytes);
}

/** CTAs that one SM can hold at once: by shared memory, with what the system takes, and by registers of 128 each. */
export function residentCtas(tile: ChannelsLastTile, resultBytes: number, transposes = false): number {
  const perSm = maxSharedBytesPerBlock({ computeCapability: sm90Capability }) + 1024;
  const bySharedMemory = Math.floor(perSm / (sharedBytesOf(tile, resultBytes, transposes) + 1024));
  const accumulators = (tile.tileM * tile.tileN) / threadsOf(tile);
  const registers = accumulators > 64 ? 232 : 128;
  return Math.max(1, Math.min(bySharedMemory, Math.floor(65536 / (threadsOf(tile) * registers))));
}
