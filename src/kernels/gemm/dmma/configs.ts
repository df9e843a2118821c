/**
 * Which f32 GEMMs run on the FP64 tensor cores (DMMA), and with which tile. Hopper's DMMA has the peak throughput of its f32 FMA units,
 * and reaches more of it. In f64 every product of two floats is exact, and the result is rounded once.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { fillsSms, wavesOf } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";
import { dmmaCapability } from "./capability.js";
import type { DmmaShape } from "./mainloop.js";

/** A tile of eager code, and the time per element of C relative to the tensor core peak, with one CTA on an SM and with several. */
interface EstimatedTile {
  readonly shape: DmmaShape;
  readonly aloneCost: number;
  readonly sharedCost: number;
}

const tile64x64: DmmaShape = { tileM: 64, tileN: 64, tileK: 16, stages: 4, warpsM: 2, warpsN: 2 };
const tile48x64: DmmaShape = { tileM: 48, tileN: 64, tileK: 32, stages: 3, warpsM: 1, warpsN: 4 };
const tile32x64: DmmaShape = { tileM: 32, tileN: 64, tileK: 32, stages: 3, warpsM: 1, warpsN: 4 };
/** A warp computes 64 × 32. So it loads and widens a quarter fewer floats for each multiplication than with 32 × 32. */
const tile128x64: DmmaShape = { tileM: 128, tileN: 64, tileK: 16, stages: 4, warpsM: 2, warpsN: 2 };

/** Costs: measured on an H200 (132 SMs) with the GEMMs of a CrossAsset step at batch 256 in f32 (`bench/gpu/compiled.ts`). */
const estimatedTiles: readonly EstimatedTile[] = [
  { shape: tile64x64, aloneCost: 1.25, sharedCost: 1.25 },
  { shape: tile48x64, aloneCost: 1.75, sharedCost: 1.35 },
  { shape: tile32x64, aloneCost: 1.96, sharedCost: 1.47 },
];

const byBits = (shape: DmmaShape): DmmaShape => ({ ...shape, widening: "bits" });

/**
 * The tiles that a compiled step measures, by the one that eager code takes. No model says which widening is faster: conversions, integer
 * instructions and tensor cores of an SM delay each other.
 */
const measuredTiles: ReadonlyMap<DmmaShape, readonly DmmaShape[]> = new Map([
  [tile64x64, [tile64x64, byBits(tile64x64), byBits(tile128x64), tile128x64]],
  [tile48x64, [tile48x64, byBits(tile48x64), byBits(tile64x64), byBits(tile128x64)]],
  [tile32x64, [tile32x64, byBits(tile32x64), byBits(tile48x64), byBits(tile64x64)]],
]);

/** For tests: all tiles that a GEMM may have. */
export const dmmaTiles: readonly DmmaShape[] = [
  ...estimatedTiles.map(({ shape }) => shape),
  ...[tile64x64, tile48x64, tile32x64, tile128x64].map(byBits),
  tile128x64,
];

/** The layout of an operand, and how many floats one cp.async can copy. */
export interface DmmaOperand {
  readonly isKMajor: boolean;
  readonly copyFloats: 1 | 2 | 4;
}

export interface DmmaConfig {
  readonly tile: DmmaShape;
  readonly a: DmmaOperand;
  readonly b: DmmaOperand;
  /** True if C allows stores of vectors (float4, or float2 with a K-major B). */
  readonly storesVectors: boolean;
  readonly hasBias: boolean;
  readonly readsC: boolean;
}

/** One k-tile: with less, cuBLASLt's kernel ends before the first stage has landed. */
const minK = Math.max(...estimatedTiles.map(({ shape }) => shape.tileK));

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
  return listDmmaConfigs(device, precision, problems)[0];
}

/** The configs of a group that a compiled step measures, first the one of eager code. Empty if DMMA cannot compute the group. */
export function listDmmaConfigs(
  device: Device,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): readonly DmmaConfig[] {
  if (device.computeCapability !== dmmaCapability) return [];
  if (precision !== "f32") return [];
  const [first] = problems;
  if (!first || !problems.every((problem) => canImplement(problem) && canGroup(problem, first))) return [];
  const tile = selectTile(device.parallelism, problems)?.shape;
  if (!tile) return [];
  const copyFloats = (operand: "a" | "b" | "c"): CopyFloats =>
    Math.min(...problems.map((problem) => copyFloatsOf(problem[operand]))) as CopyFloats;
  const layouts: Omit<DmmaConfig, "tile"> = {
    a: { isKMajor: !first.a.isTransposed, copyFloats: copyFloats("a") },
    b: { isKMajor: first.b.isTransposed === true, copyFloats: copyFloats("b") },
    storesVectors: copyFloats("c") === 4,
    hasBias: first.bias !== undefined,
    readsC: (first.beta ?? 0) !== 0,
  };
  return (measuredTiles.get(tile) ?? [tile]).map((shape) => ({ tile: shape, ...layouts }));
}

/** Multiplications of one SM per clock. */
const productsPerClock = 128;

/** The estimated clocks of a GEMM by DMMA; undefined if DMMA cannot compute it. */
export function estimateDmmaClocks(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): number | undefined {
  if (listDmmaConfigs(device, precision, [problem]).length === 0) return undefined;
  const { time = 0 } = selectTile(device.parallelism, [problem]) ?? {};
  return (time * problem.k) / productsPerClock;
}

export function countCtas(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { tileM, tileN }: DmmaShape,
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
function selectTile(
  sms: number,
  problems: readonly GemmDesc[],
): { readonly shape: DmmaShape; readonly time: number } | undefined {
  let best: { readonly shape: DmmaShape; readonly time: number } | undefined;
  for (const { shape, aloneCost, sharedCost } of estimatedTiles) {
    const ctas = problems.reduce((sum, problem) => sum + countCtas(problem, shape), 0);
    if (!fillsSms(ctas, sms, minSmShare)) continue;
    const waves = wavesOf(ctas, sms);
    const time = waves * shape.tileM * shape.tileN * (waves === 1 ? aloneCost : sharedCost);
    if (!best || time < best.time) best = { shape, time };
  }
  return best;
}

type CopyFloats = DmmaOperand["copyFloats"];

/** How many floats the alignment of an operand's rows and matrices allows to copy at once. */
function copyFloatsOf({ rowStride, batchStride = 0, storage }: GemmDesc["a"]): CopyFloats {
  const isAligned = (floats: number): boolean =>
    rowStride % floats === 0 && batchStride % floats === 0 && storage.span.address % (4 * floats) === 0;
  return isAligned(4) ? 4 : isAligned(2) ? 2 : 1;
}
