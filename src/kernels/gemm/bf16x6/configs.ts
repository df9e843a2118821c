/** Which f32 GEMMs run as six bf16 products, and how they split K. */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { wavesOf } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";

/** The tile of a CTA: two consumer warpgroups of 64 × 128. Each thread has 64 accumulators of a k-tile, and 64 of all k-tiles. */
export const [tileM, tileN, tileK] = [128, 128, 64];

/** The properties that a kernel is specialised on. */
export interface Bf16x6Config {
  /** K-major: neighbours along K are contiguous. Otherwise the operand is MN-major. */
  readonly isKMajor: { readonly a: boolean; readonly b: boolean };
  readonly hasBias: boolean;
  readonly readsC: boolean;
  /** True if C allows stores of float2. */
  readonly storesVectors: boolean;
  /** The CTAs of a cluster that split K. */
  readonly splitsK: 1 | 2 | 4 | 8;
}

type Device = Pick<DeviceInfo, "computeCapability" | "parallelism">;

/** Clocks of an SM: for a product of two bf16 k-tiles at the tensor cores' peak, … */
const productClocks = (tileM * tileN * tileK) / 2048;
/** … for a k-tile: six products, of which the splits of the operands hide all but a fifth, … */
const kTileClocks = (6 * productClocks) / 0.8;
/** … and for a CTA's first loads and its stores. A cluster's exchange of accumulators costs as much again. */
const ctaClocks = 4000;

/** The number of CTAs, with all splits of K. */
export function countCtas(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { splitsK }: Pick<Bf16x6Config, "splitsK">,
): number {
  return Math.ceil(m / tileM) * Math.ceil(n / tileN) * batch * splitsK;
}

/** The config of a GEMM, and its estimated clocks. Undefined if the kernel cannot compute it. */
export function selectBf16x6(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): { readonly config: Bf16x6Config; readonly clocks: number } | undefined {
  if (device.computeCapability !== "9.0" || precision !== "f32" || !canImplement(problem)) return undefined;
  const { a, b, c, bias, beta = 0, k } = problem;
  const kTiles = Math.ceil(k / tileK);
  const clocksOf = (splitsK: Bf16x6Config["splitsK"]): number =>
    wavesOf(countCtas(problem, { splitsK }), device.parallelism) *
    (Math.ceil(kTiles / splitsK) * kTileClocks + (splitsK > 1 ? 2 : 1) * ctaClocks);
  let splitsK: Bf16x6Config["splitsK"] = 1;
  for (const splits of [2, 4, 8] as const)
    if (splits <= kTiles && clocksOf(splits) < clocksOf(splitsK)) splitsK = splits;
  return {
    clocks: clocksOf(splitsK),
    config: {
      isKMajor: { a: !a.isTransposed, b: b.isTransposed === true },
      ...{ hasBias: bias !== undefined, readsC: beta !== 0, splitsK },
      storesVectors: isAligned(c, 2),
    },
  };
}

function canImplement({ dtype, resultDtype = dtype, biasDtype = resultDtype, a, b, k }: GemmDesc): boolean {
  return (
    dtype === "f32" &&
    resultDtype === "f32" &&
    biasDtype === "f32" &&
    k > 0 &&
    // TMA copies rows that begin at multiples of 16 bytes.
    isAligned(a, 4) &&
    isAligned(b, 4)
  );
}

/** True if rows and matrices begin at multiples of so many floats. */
function isAligned({ rowStride, batchStride = 0, storage }: GemmDesc["c"], floats: number): boolean {
  return (
    rowStride % floats === 0 && batchStride % floats === 0 && storage.span.address % (4 * floats) === 0
  );
}
