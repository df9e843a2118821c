/** CTA tiles of channels-last convolutions in f32, and their shared memory. */

import { maxSharedBytesPerBlock, registersPerSm } from "../../../cost-model.js";
import { type DmmaShape, dmmaCapability, tileFloats } from "../../../gemm/dmma/index.js";
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

export function dmmaSharedBytes(
  { tileM, tileN, tileK, stages }: DmmaShape,
  isKMajor: OperandMajors,
  resultBytes: number,
): number {
  const floats = tileFloats(tileM, tileK, isKMajor.a) + tileFloats(tileN, tileK, isKMajor.b);
  return Math.max(4 * stages * floats, tileM * (tileN + stagedPadding) * resultBytes);
}

/** CTAs that one SM can hold at once: by shared memory, with what the system takes, and by registers. */
export function residentDmmaCtas({ tileM, tileN, warpsM, warpsN }: DmmaShape, sharedBytes: number): number {
  const threads = 32 * warpsM * warpsN;
  const perSm = maxSharedBytesPerBlock({ computeCapability: dmmaCapability }) + 1024;
  const bySharedMemory = Math.floor(perSm / (sharedBytes + 1024));
  // Accumulators take two registers each. Fragments and addresses take about a hundred.
  const registers = Math.min(255, (2 * tileM * tileN) / threads + 104);
  return Math.max(1, Math.min(bySharedMemory, Math.floor(registersPerSm / (threads * registers))));
}
