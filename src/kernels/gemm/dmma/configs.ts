/**
 * Which f32 GEMMs run on the FP64 tensor cores (DMMA), and with which tile. Hopper's DMMA has the peak throughput of its f32 FMA units,
 * and reaches more of it. In f64 every product of two floats is exact, and the result is rounded once.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { fillsSms, wavesOf } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";
import type { DmmaShape } from "./mainloop.js";

/** Hopper: other architectures have far fewer FP64 units than f32 units. */
export const dmmaCapability = "9.0";

export interface DmmaTile extends DmmaShape {
  /** Time per element of C relative to the tensor core peak, with one CTA on an SM and with several. */
  readonly aloneCost: number;
  readonly sharedCost: number;
}

/** Costs: measured on an H200 (132 SMs) with the GEMMs of a CrossAsset step at batch 256 in f32 (`bench/gpu/compiled.ts`). */
export const dmmaTiles: readonly DmmaTile[] = [
  { tileM: 64, tileN: 64, tileK: 16, stages: 4, warpsM: 2, warpsN: 2, aloneCost: 1.25, sharedCost: 1.25 },
  { tileM: 48, tileN: 64, tileK: 32, stages: 3, warpsM: 1, warpsN: 4, aloneCost: 1.75, sharedCost: 1.35 },
  { tileM: 32, tileN: 64, tileK: 32, stages: 3, warpsM: 1, warpsN: 4, aloneCost: 1.96, sharedCost: 1.47 },
];

/** The layout of an operand, and how many floats one cp.async can copy. */
export interface DmmaOperand {
  readonly isKMajor: boolean;
  readonly copyFloats: 1 | 2 | 4;
}

export interface DmmaConfig {
  readonly tile: DmmaTile;
  readonly a: DmmaOperand;
  readonly b: DmmaOperand;
  /** True if C allows stores of vectors (float4, or float2 with a K-major B). */
  readonly storesVectors: boolean;
  readonly hasBias: boolean;
  readonly readsC: boolean;
}

/** One k-tile: with less, cuBLASLt's kernel ends before the first stage has landed. */
const minK = Math.max(...dmmaTiles.map(({ tileK }) => tileK));

/** With fewer CTAs than this share of the SMs, cuBLASLt's split-K wins. Measured like the costs of the tiles. */
const minSmShare = 0.2;

type Device = Pick<DeviceInfo, "computeCapability" | "parallelism">;

/**
 * The config of a group of GEMMs in one launch; undefined if DMMA cannot compute them, or not in one launch. A GEMM has the same bits with
 * every config: it accumulates in the order of k.
 */
export function selectDmmaConfig(
  device: Device,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): DmmaConfig | undefined {
  if (device.computeCapability !== dmmaCapability) return undefined;
  if (precision !== "f32") return undefined;
  const [first] = problems;
  if (!first || !problems.every((problem) => canImplement(problem) && canGroup(problem, first)))
    return undefined;
  const tile = selectTile(device.parallelism, problems);
  if (!tile) return undefined;
  const copyFloats = (operand: "a" | "b" | "c"): CopyFloats =>
    Math.min(...problems.map((problem) => copyFloatsOf(problem[operand]))) as CopyFloats;
  return {
    tile,
    a: { isKMajor: !first.a.isTransposed, copyFloats: copyFloats("a") },
    b: { isKMajor: first.b.isTransposed === true, copyFloats: copyFloats("b") },
    storesVectors: copyFloats("c") === 4,
    hasBias: first.bias !== undefined,
    readsC: (first.beta ?? 0) !== 0,
  };
}

export function countCtas(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { tileM, tileN }: DmmaTile,
): number {
  return Math.ceil(m / tileM) * Math.ceil(n / tileN) * batch;
}

function canImplement(problem: GemmDesc): boolean {
  const { dtype, resultDtype = dtype, k, a, b } = problem;
  // Copies of single floats take longer than the mainloop.
  return dtype === "f32" && resultDtype === "f32" && k >= minK && copyFloatsOf(a) > 1 && copyFloatsOf(b) > 1;
}

/** GEMMs of a group share one kernel, so they need the same layouts. They have the same K, so that their CTAs end at the same time. */
function canGroup(problem: GemmDesc, other: GemmDesc): boolean {
  const traitsOf = ({ k, a, b, bias, beta = 0 }: GemmDesc) =>
    [k, a.isTransposed === true, b.isTransposed === true, bias !== undefined, beta !== 0].join();
  return traitsOf(problem) === traitsOf(other);
}

/** The tile with the shortest estimated time of the busiest SM. */
function selectTile(sms: number, problems: readonly GemmDesc[]): DmmaTile | undefined {
  let best: { readonly tile: DmmaTile; readonly time: number } | undefined;
  for (const tile of dmmaTiles) {
    const ctas = problems.reduce((sum, problem) => sum + countCtas(problem, tile), 0);
    if (!fillsSms(ctas, sms, minSmShare)) continue;
    const waves = wavesOf(ctas, sms);
    const time = waves * tile.tileM * tile.tileN * (waves === 1 ? tile.aloneCost : tile.sharedCost);
    if (!best || time < best.time) best = { tile, time };
  }
  return best?.tile;
}

type CopyFloats = DmmaOperand["copyFloats"];

/** How many floats the alignment of an operand's rows and matrices allows to copy at once. */
function copyFloatsOf({ rowStride, batchStride = 0, storage }: GemmDesc["a"]): CopyFloats {
  const isAligned = (floats: number): boolean =>
    rowStride % floats === 0 && batchStride % floats === 0 && storage.span.address % (4 * floats) === 0;
  return isAligned(4) ? 4 : isAligned(2) ? 2 : 1;
}
