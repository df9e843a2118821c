/**
 * Which GEMMs run on native Hopper kernels (wgmma, TMA), and with which tile. cuBLASLt is as fast or faster on a single plain GEMM. The
 * native kernels are for what it lacks: grouped GEMMs in one launch, fused epilogues, and batches with unaligned rows.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import type { RowKernel } from "../../../ir/index.js";
import { dtypes, factsOf } from "../../../ir/index.js";
import { storesColsums } from "../../codegen/cuda/column-partials.js";
import type { MmaElement } from "../../codegen/cuda/intrinsics/wgmma.js";
import { fillsSms, registersPerSm } from "../../cost-model.js";
import { type GemmDesc, isUnalignedBatch, isWeightGradient } from "../desc.js";

/** Hopper only: Blackwell replaces wgmma by tcgen05. */
export const sm90Capability = "9.0";

/** CTA tile shape, consumer warpgroups, and number of pipeline stages. */
export interface Sm90Tile {
  readonly tileM: number;
  readonly tileN: number;
  readonly stages: number;
  readonly warpgroupsM: number;
  readonly warpgroupsN: number;
  /** Split-K over the two CTAs of a cluster: each accumulates half of K. */
  readonly splitsK?: boolean;
  /** Computes Cᵀ = Bᵀ · Aᵀ: a warpgroup's 64 rows are columns of C, so that tileM can be any multiple of 8. */
  readonly swapsAB?: boolean;
}

/** `large` is for small K; `square` has more stages for large K; `small` is for results with too few tiles of the others. */
const tiles = {
  large: { tileM: 192, tileN: 128, stages: 4, warpgroupsM: 3, warpgroupsN: 1 },
  square: { tileM: 128, tileN: 128, stages: 6, warpgroupsM: 2, warpgroupsN: 1 },
  small: { tileM: 64, tileN: 128, stages: 4, warpgroupsM: 1, warpgroupsN: 2 },
  /** For the mma.sync mainloop, which needs several CTAs on an SM. */
  mmaSync: { tileM: 64, tileN: 64, stages: 4, warpgroupsM: 1, warpgroupsN: 1 },
} as const satisfies Readonly<Record<string, Sm90Tile>>;

export const sm90Tiles: readonly Sm90Tile[] = Object.values(tiles);

/** For TF32 weight gradients: A and B are MN-major and K is large. */
export const splitKTile: Sm90Tile = {
  tileM: 256,
  tileN: 128,
  stages: 4,
  warpgroupsM: 2,
  warpgroupsN: 1,
  splitsK: true,
};

/** Half of an SM's registers can hold accumulators; the rest is for addresses and the epilogue. */
const maxAccumulators = registersPerSm / 2;
/** The largest N of one wgmma instruction. */
const maxMmaN = 256;

/**
 * The swapAB tile that covers C in a single wave (at most one CTA per SM) and loads the least. Undefined if every such tile would exceed
 * the accumulator registers.
 */
export function singleWaveTile(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  sms: number,
): Sm90Tile | undefined {
  let best: Sm90Tile | undefined;
  for (let tileN = 64; tileN <= maxMmaN && tileN - 64 < n; tileN += 64) {
    const tilesM = Math.floor(sms / (batch * Math.ceil(n / tileN)));
    const tileM = 8 * Math.ceil(m / (8 * tilesM));
    if (tileM > maxMmaN || tileM * tileN > maxAccumulators) continue;
    if (best && tileM + tileN >= best.tileM + best.tileN) continue;
    best = { tileM, tileN, stages: 8, warpgroupsM: 1, warpgroupsN: tileN / 64, swapsAB: true };
  }
  return best;
}

/** N of a warpgroup's wgmma instruction. */
export function mmaNOf({ tileM, tileN, warpgroupsN, swapsAB }: Sm90Tile): number {
  return swapsAB ? tileM : tileN / warpgroupsN;
}

/** True for the RS mainloop: A is loaded through registers because it is MN-major, and a producer warpgroup transposes B. */
export function isRsMainloop({ element, tile, isKMajor }: Sm90Config): boolean {
  return element === "tf32" && !isKMajor.a && !isKMajor.b && tile.splitsK === true;
}

/** True for the mma.sync mainloop: small TF32 GEMMs with an MN-major A, which wgmma SS cannot read. */
export function isMmaSyncMainloop(config: Sm90Config): boolean {
  return config.element === "tf32" && !config.isKMajor.a && !isRsMainloop(config);
}

/** True if B has to be transposed in shared memory: wgmma reads TF32 K-major only. */
export function transposesB({ element, isKMajor }: Pick<Sm90Config, "element" | "isKMajor">): boolean {
  return element === "tf32" && !isKMajor.b;
}

export interface Sm90Config {
  readonly element: MmaElement;
  readonly tile: Sm90Tile;
  /** K-major: neighbours along K are contiguous. Otherwise the operand is MN-major. */
  readonly isKMajor: { readonly a: boolean; readonly b: boolean };
  readonly hasBias: boolean;
  /** The dtype of C, rounded once; default: f32. The bias is f32 either way. */
  readonly resultDtype?: "f32" | "bf16" | "f16";
  /** N, if the kernel is specialised on it. */
  readonly constantN?: number;
  /** The kernel is specialised on batch == 1. */
  readonly isUnbatched?: boolean;
  /** Loads B before the grid dependency wait (programmatic dependent launch). */
  readonly prefetchesB?: boolean;
  /** Launch as 1×2 clusters: two CTAs with the same M tile run on neighbouring SMs, so that A is shared through L2. */
  readonly clusterN?: 2;
}

/** Elementwise work on the accumulators of a GEMM before they are stored. */
export interface Epilogue {
  readonly kernel: RowKernel;
  /** Which of the kernel's inputs is the result of the GEMM. */
  readonly product: number;
  /** For each input: the output of an earlier stage that it reads (store-to-load forwarding); undefined for inputs from memory. */
  readonly forwarded?: readonly (number | undefined)[];
  /** True if C itself is stored too. */
  readonly storesC: boolean;
}

type Device = Pick<DeviceInfo, "computeCapability">;

/** The config of a grouped GEMM of weight gradients; undefined if one launch cannot compute these. */
export function selectGroupedConfig(
  device: Device,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): Sm90Config | undefined {
  const [first] = problems;
  const element = first && elementOf(device, precision, first);
  if (!first || !element) return undefined;
  const areGroupable = problems.every(
    (problem) =>
      isWeightGradient(problem) &&
      canImplement(problem) &&
      problem.dtype === first.dtype &&
      !problem.bias &&
      !halfResultOf(problem).resultDtype,
  );
  const tile = element === "tf32" ? splitKTile : tiles.square;
  const config = {
    element,
    tile,
    isKMajor: { a: false, b: false },
    hasBias: false,
    ...clusterOf(problems, tile),
  };
  return areGroupable ? config : undefined;
}

/**
 * When an epilogue is fused. Measured on an H200 (`bench/gpu/compiled.ts`, bf16 and TF32 steps):
 * - above `maxK`, cuBLASLt's faster mainloop saves more than a separate elementwise pass costs;
 * - below `minElements`, C stays in L2 and the separate pass costs little more than its launch.
 * A result that is small enough for small tiles has a pass that is mostly launch overhead, which allows a larger K.
 */
const epilogueLimits = {
  large: { maxK: 512, minElements: 1 << 20 },
  small: { maxK: 768, minElements: 1 << 19 },
} as const;

/** Large tiles need to cover half of the SMs, or too many of them idle. */
const minSmShareOfLargeTiles = 1 / 2;

/** The config of a GEMM with a fused epilogue; undefined if the two are faster apart. */
export function selectEpilogueConfig(
  device: Device & Pick<DeviceInfo, "parallelism">,
  precision: GemmPrecision,
  problem: GemmDesc,
  { kernel, product }: Epilogue,
): Sm90Config | undefined {
  const { m, n, k, batch = 1, c, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !canImplement(problem) || a.isTransposed || batch !== 1) return undefined;
  const isKMajor = { a: true, b: b.isTransposed === true };
  const largeCtas = countCtas(problem, tiles.large);
  const usesLarge =
    fillsSms(largeCtas, device.parallelism, minSmShareOfLargeTiles) ||
    // Small tiles would transpose B more often.
    transposesB({ element, isKMajor }) ||
    onlyConverts(kernel);
  const { maxK, minElements } = usesLarge ? epilogueLimits.large : epilogueLimits.small;
  const tile: Sm90Tile = usesLarge
    ? tiles.large
    : (singleWaveTile(problem, device.parallelism) ?? tiles.small);
  if (k > maxK || m * n < minElements || c.rowStride !== n) return undefined;
  const { usesPlace, readsAtIndex } = factsOf(kernel);
  if (!storesElementsOnly(kernel) || usesPlace || readsAtIndex || kernel.inputs[product] !== "f32")
    return undefined;
  if (storesColsums(kernel) && (tile.swapsAB || mmaNOf(tile) !== colsumMmaN)) return undefined;
  const config = {
    element,
    tile,
    isKMajor,
    hasBias: bias !== undefined,
    constantN: n,
    isUnbatched: true,
  } as const;
  return { ...config, ...halfResultOf(problem), ...prefetchOf(problem), ...clusterOf([problem], tile) };
}

/** Column sums need the epilogue store in which a warp stores one row at a time, four columns per lane. */
const colsumMmaN = 128;

/** True if a kernel only stores elements, and column sums of them. */
function storesElementsOnly({ stages, outputs }: RowKernel): boolean {
  return stages.every((stage) => stage.kind === "store" && outputs[stage.output]?.per !== "row");
}

/** True if a kernel only converts what it loads: cuBLASLt stores 16-bit results itself. */
function onlyConverts({ stages }: RowKernel): boolean {
  return stages.every(({ value }) => (value.kind === "convert" ? value.a : value).kind === "load");
}

/** The config of a batch of small GEMMs with unaligned rows. */
export function selectBatchedConfig(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): Sm90Config | undefined {
  const { a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !isUnalignedBatch(problem) || !canImplement(problem)) return undefined;
  const isKMajor = { a: !a.isTransposed, b: b.isTransposed === true };
  const config = {
    ...{ element, tile: tiles.small, isKMajor, hasBias: bias !== undefined },
    ...halfResultOf(problem),
  };
  if (!isMmaSyncMainloop(config)) return config;
  return isKMajor.b || bias ? undefined : { ...config, tile: tiles.mmaSync };
}

/** The tiles to try for a plain GEMM that has no single-wave tile. */
const candidateTiles = [tiles.large, tiles.small] as const;

/** With fewer CTAs than this share of the SMs, cuBLASLt's split-K wins (measured by `bench/gpu/compiled.ts`). */
const minSmShareOfCandidates = 1 / 3;

/** The configs of a plain or batched GEMM that autotuning compares with cuBLASLt's algorithms. Their order gives the algorithm ids. */
export function listCandidates(
  device: Device & Pick<DeviceInfo, "parallelism">,
  precision: GemmPrecision,
  problem: GemmDesc,
): readonly Sm90Config[] {
  const { m, n, batch = 1, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || a.isTransposed || !canImplement(problem)) return [];
  const isKMajor = { a: true, b: b.isTransposed === true };
  // With swapAB, B is the wgmma operand that cannot be transposed in shared memory.
  const wave = transposesB({ element, isKMajor }) ? undefined : singleWaveTile(problem, device.parallelism);
  return (wave ? [wave] : candidateTiles)
    .filter(
      (tile) =>
        m >= tile.tileM &&
        n >= tile.tileN &&
        fillsSms(countCtas(problem, tile), device.parallelism, minSmShareOfCandidates),
    )
    .map((tile) => ({
      ...{ element, tile, isKMajor, hasBias: bias !== undefined, constantN: n, isUnbatched: batch === 1 },
      ...{ ...halfResultOf(problem), ...prefetchOf(problem), ...clusterOf([problem], tile) },
    }));
}

/** Below this M a pass that transposes the weights costs more than it saves (measured by `bench/gpu/compiled.ts`, TF32). */
const minMToTranspose = 1024;

/** True if the GEMM runs faster with a K-major B, because wgmma reads TF32 K-major only. */
export function prefersTransposed(device: Device, precision: GemmPrecision, problem: GemmDesc): boolean {
  const { m, k, a, b } = problem;
  const isNative = canImplement(problem) && !isUnalignedBatch(problem);
  const isMnMajorB = !a.isTransposed && !b.isTransposed && k % 4 === 0 && m >= minMToTranspose;
  return isMnMajorB && isNative && elementOf(device, precision, problem) === "tf32";
}

/** Two CTAs of a row of tiles form a cluster if every GEMM has an even number of N tiles. Split-K uses the cluster for K. */
function clusterOf(
  problems: readonly Pick<GemmDesc, "n">[],
  { tileN, splitsK }: Sm90Tile,
): Pick<Sm90Config, "clusterN"> {
  const isEven = !splitsK && problems.every(({ n }) => Math.ceil(n / tileN) % 2 === 0);
  return isEven ? { clusterN: 2 } : {};
}

function prefetchOf({ prefetchesB }: GemmDesc): Pick<Sm90Config, "prefetchesB"> {
  return prefetchesB ? { prefetchesB } : {};
}

/** The dtype of C if it has 16 bits. */
function halfResultOf({ dtype, resultDtype = dtype }: GemmDesc): Pick<Sm90Config, "resultDtype"> {
  return resultDtype === "bf16" || resultDtype === "f16" ? { resultDtype } : {};
}

function elementOf(
  { computeCapability }: Device,
  precision: GemmPrecision,
  { dtype }: GemmDesc,
): MmaElement | undefined {
  if (computeCapability !== sm90Capability) return undefined;
  if (dtype === "bf16" || dtype === "f16") return dtype;
  return dtype === "f32" && precision === "tf32" ? "tf32" : undefined;
}

/** TMA needs rows and matrices that begin on 16 bytes; the epilogue stores 16 bytes at a time. */
const tmaAlignment = 16;

/** The mainloop needs one 128-byte k-tile of the widest element. */
const minK = 64;

function canImplement(problem: GemmDesc): boolean {
  const { n, k, batch = 1, a, b, c, bias, biasBatchStride = 0, dtype, resultDtype = dtype } = problem;
  const { alpha = 1, beta = 0, activation, biasDtype = resultDtype } = problem;
  if (alpha !== 1 || beta !== 0 || activation || k < minK) return false;
  // A 16-bit result needs operands of the same dtype.
  if ((resultDtype !== "f32" && resultDtype !== dtype) || (bias && biasDtype !== "f32")) return false;
  const isAligned = ({ rowStride, batchStride = 0, storage }: GemmDesc["a"], bytes: number): boolean =>
    [rowStride, batch === 1 ? 0 : batchStride].every((stride) => (stride * bytes) % tmaAlignment === 0) &&
    storage.span.address % tmaAlignment === 0;
  const { bytes } = dtypes[dtype];
  const isBiasAligned = !bias || (bias.span.address % tmaAlignment === 0 && biasBatchStride % 4 === 0);
  return (
    n % 8 === 0 &&
    isBiasAligned &&
    isAligned(a, bytes) &&
    isAligned(b, bytes) &&
    isAligned(c, dtypes[resultDtype].bytes)
  );
}

export function countCtas(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { tileM, tileN, splitsK }: Sm90Tile,
): number {
  return Math.ceil(m / tileM) * Math.ceil(n / tileN) * batch * (splitsK ? 2 : 1);
}
