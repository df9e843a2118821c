/** Which f32 GEMMs run as six bf16 products, and how they split K. */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { literalKey } from "../../../units/index.js";
import { residentClusterCtas, wavesOf } from "../../cost-model.js";
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

/**
 * Clocks of an SM, in the unit of DMMA's estimates: of a k-tile, of a CTA's first loads and its stores, and of a cluster's exchange of
 * accumulators. Measured on an H200 (`bench/gpu/f32-gemms.ts`).
 */
const [kTileClocks, ctaClocks, exchangeClocks] = [4800, 7500, 3000];

/** The number of CTAs, with all splits of K. */
export function countCtas(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { splitsK }: Pick<Bf16x6Config, "splitsK">,
): number {
  return Math.ceil(m / tileM) * Math.ceil(n / tileN) * batch * splitsK;
}

/** True if one launch can compute GEMMs of these configs. */
export function areEqualConfigs(configs: readonly Bf16x6Config[]): boolean {
  return new Set(configs.map(literalKey)).size === 1;
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
    wavesOf(countCtas(problem, { splitsK }), residentClusterCtas(device.parallelism, splitsK)) *
    (Math.ceil(kTiles / splitsK) * kTileClocks + ctaClocks + (splitsK > 1 ? exchangeClocks : 0));
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
  return rowStride % floats === 0 && batchStride % floats === 0 && storage.span.address % (4 * floats) === 0;
}
