/** CTA tiles of channels-last convolutions in f32, and their shared memory. */

import { type DmmaShape, stageBytes } from "../../../gemm/dmma/index.js";
import type { OperandMajors } from "./mainloop.js";
import { stagedPadding } from "./tiles.js";

/** K of every k-tile. The splits of a sum are whole k-tiles, so that they do not depend on the tile. */
export const dmmaTileK = 16;

const tile = (tileM: number, tileN: number, warpsM: number, warpsN: number): DmmaShape => ({
  ...{ tileM, tileN, tileK: dmmaTileK, stages: 4, warpsM, warpsN },
});

/** A warp computes 64 × 32, 32 × 64, 32 × 32 or 32 × 16. */
export const dmmaConvolutionTiles: readonly DmmaShape[] = [
  tile(128, 128, 2, 4),
  tile(128, 64, 2, 2),
  tile(64, 128, 2, 2),
  tile(64, 64, 2, 2),
  tile(128, 32, 4, 1),
  tile(32, 64, 1, 4),
];

export function dmmaSharedBytes(shape: DmmaShape, isKMajor: OperandMajors, resultBytes: number): number {
  return Math.max(stageBytes(shape, isKMajor), shape.tileM * (shape.tileN + stagedPadding) * resultBytes);
}
