/** The shared memory of DMMA kernels, and how many of their CTAs an SM can hold. */

import { maxSharedBytesPerBlock, registersPerSm } from "../../cost-model.js";
import { dmmaCapability } from "./capability.js";
import type { DmmaShape } from "./mainloop.js";

/** The floats of an operand's k-tile in shared memory: `TileLayout::floats`. */
export function tileFloats(size: number, tileK: number, isKMajor: boolean): number {
  return isKMajor ? size * (tileK + 4) : tileK * (size + 8);
}

/** The bytes of all stages. */
export function stageBytes(
  { tileM, tileN, tileK, stages }: DmmaShape,
  isKMajor: Readonly<Record<"a" | "b", boolean>>,
): number {
  return 4 * stages * (tileFloats(tileM, tileK, isKMajor.a) + tileFloats(tileN, tileK, isKMajor.b));
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
