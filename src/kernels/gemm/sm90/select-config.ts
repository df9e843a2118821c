/**
 * Selects which GEMMs run on native Hopper kernels, and with which config. cuBLASLt is as fast or faster on a single plain GEMM. The native
 * kernels add grouped GEMMs in one launch, fused epilogues, and batches with unaligned rows.
 *
 * The thresholds are shares of the SMs, or follow from a tile. Their values were measured with `bench/gpu/compiled.ts` on an H200 (132
 * SMs), with the TF32 and bf16 steps of CrossAsset at batch 256.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import type { RowKernel } from "../../../ir/index.js";
import { dtypes, factsOf } from "../../../ir/index.js";
import { storesColsums } from "../../codegen/cuda/column-partials.js";
import type { MmaElement } from "../../codegen/cuda/intrinsics/wgmma.js";
import { fillsSms, launchBytes } from "../../cost-model.js";
import type { GemmDesc } from "../desc.js";
import { type Epilogue, isMmaSyncMainloop, type Sm90Config, sm90Capability, transposesB } from "./configs.js";
import { canPingPong } from "./ping-pong.js";
import {
  countCtas,
  fittedTile,
  kTileBytes,
  mmaNOf,
  pingPongTile,
  type Sm90Tile,
  singleWaveTile,
  sizeInTiles,
  tiles,
} from "./tiles.js";

export type Architecture = Pick<DeviceInfo, "computeCapability">;
type Device = Architecture & Pick<DeviceInfo, "parallelism">;

/** True for the layout of weight gradients: both operands are MN-major. */
export function isWeightGradient({ a, b }: Pick<GemmDesc, "a" | "b">): boolean {
  return a.isTransposed === true && !b.isTransposed;
}

/**
 * When an epilogue is fused without measurement:
 * - Above `maxK`, cuBLASLt's faster mainloop saves more than a separate elementwise pass costs. Both grow with M · N, so that M and N do
 *   not matter.
 * - If C has fewer elements than tiles for `minSmShare` of the SMs, the separate pass costs little more than its launch.
 * With small tiles the pass is mostly launch overhead, which allows a larger K.
 */
const epilogueLimits = {
  large: { maxK: 512, minSmShare: 5 / 16 },
  small: { maxK: 768, minSmShare: 3 / 8 },
} as const;

/** Large tiles need to cover half of the SMs, or too many of them idle. */
const minSmShareOfLargeTiles = 1 / 2;

/** Tiles that autotuning compares with the default one, if they fill the SMs. */
const epilogueTiles = [tiles.large, tiles.paired, tiles.wide] as const;

/** The configs of a GEMM with a fused epilogue, the default first; none if no native kernel computes it. */
export function listEpilogueConfigs(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
  epilogue: Epilogue,
): readonly Sm90Config[] {
  const { kernel, gemmInput } = epilogue;
  const { n, batch = 1, c, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !canImplement(problem) || a.isTransposed || batch !== 1) return [];
  if (c.rowStride !== n) return [];
  const isKMajor = { a: true, b: b.isTransposed === true };
  const tile = usesLargeTile(device, element, problem, kernel)
    ? tiles.large
    : (singleWaveTile(problem, device.parallelism) ?? tiles.small);
  const { usesPosition, readsAtIndex } = factsOf(kernel);
  if (!storesElementsOnly(kernel) || usesPosition || readsAtIndex || kernel.inputs[gemmInput] !== "f32")
    return [];
  if (storesColsums(kernel) && (tile.swapsAB || mmaNOf(tile) !== colsumMmaN)) return [];
  // The other tiles have no shared memory left for a transposed B.
  const others = transposesB({ element, isKMajor })
    ? []
    : epilogueTiles.filter(
        (other) =>
          other !== tile && fillsSms(countCtas(problem, other), device.parallelism, other.ctasPerSm ?? 1),
      );
  const ofTiles = [tile, ...others].flatMap((candidate) => {
    const config = {
      ...{ element, tile: candidate, isKMajor, hasBias: bias !== undefined, constantN: n, isUnbatched: true },
      ...{ ...halvesOf(problem), ...prefetchOf(problem), ...clusterOf([problem], candidate) },
    };
    const loadsEarly = candidate === tiles.paired && canLoadEarly(epilogue);
    return loadsEarly ? [config, { ...config, loadsOperandsEarly: true }] : [config];
  });
  const pingPong = pingPongConfig(device, problem, element, epilogue);
  return pingPong ? [...ofTiles, pingPong] : ofTiles;
}

/** The persistent config of a GEMM, with one CTA per SM. Undefined if it cannot compute the GEMM, or has less than a tile for each SM. */
export function pingPongConfig(
  { parallelism }: Device,
  problem: GemmDesc,
  element: MmaElement,
  epilogue?: Epilogue,
): Sm90Config | undefined {
  const config: Sm90Config = {
    ...{ element, tile: pingPongTile, isUnbatched: true, maxCtas: parallelism },
    ...{ isKMajor: { a: true, b: problem.b.isTransposed === true }, hasBias: problem.bias !== undefined },
    ...{ ...halvesOf(problem), ...prefetchOf(problem) },
  };
  const isPossible = !transposesB(config) && canPingPong(config, epilogue);
  return isPossible && fillsSms(countCtas(problem, pingPongTile), parallelism, 1) ? config : undefined;
}

/** Bytes of an element's operands that fit in registers next to the accumulators of a CTA that shares its SM. */
const maxEarlyBytes = 2;

/** True if an epilogue has operands that can be loaded before the mainloop. Drawn numbers are computed, and hide other latencies. */
function canLoadEarly({ kernel, gemmInput, forwarded = [] }: Epilogue): boolean {
  const bytes = kernel.inputs.map((dtype, input) => {
    if (input === gemmInput || forwarded[input] !== undefined) return 0;
    return dtype === "draw" ? Number.POSITIVE_INFINITY : dtypes[dtype].bytes;
  });
  const sum = bytes.reduce((before, next) => before + next, 0);
  return sum > 0 && sum <= maxEarlyBytes;
}

/** True if a GEMM with its epilogue in one launch is probably faster than two launches. Autotuning measures it for large GEMMs. */
export function prefersFusedEpilogue(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
  { kernel }: Pick<Epilogue, "kernel">,
): boolean {
  const element = elementOf(device, precision, problem);
  if (!element) return false;
  const size = usesLargeTile(device, element, problem, kernel) ? "large" : "small";
  const { maxK, minSmShare } = epilogueLimits[size];
  return problem.k <= maxK && fillsSms(sizeInTiles(problem, tiles[size]), device.parallelism, minSmShare);
}

function usesLargeTile(
  { parallelism }: Device,
  element: MmaElement,
  problem: GemmDesc,
  kernel: RowKernel,
): boolean {
  return (
    fillsSms(countCtas(problem, tiles.large), parallelism, minSmShareOfLargeTiles) ||
    // Small tiles would transpose B more often.
    transposesB({ element, isKMajor: { a: true, b: problem.b.isTransposed === true } }) ||
    onlyConverts(kernel)
  );
}

/** Column sums need the epilogue store in which a warp stores one row at a time, four columns per lane. */
const colsumMmaN = 128;

/** True if a kernel only stores elements, and column sums of them. */
function storesElementsOnly({ stages, outputs }: RowKernel): boolean {
  return stages.every((stage) => stage.kind === "store" && outputs[stage.output]?.per !== "row");
}

/** True if a kernel only converts elements: cuBLASLt stores 16-bit results itself. */
function onlyConverts({ stages }: RowKernel): boolean {
  return stages.every(({ value }) => (value.kind === "convert" ? value.a : value).kind === "load");
}

/** Rows of 16-bit elements whose length is no multiple of this do not begin on 16 bytes. */
const alignedElements = 8;

/**
 * True for a batch of GEMMs with rows of unaligned length and less than one 128 × 128 tile per SM. Separate layers for
 * groups of 193 features are an example. cuBLASLt has only slow kernels for these, even if the row strides are aligned.
 * With more tiles it is as fast.
 */
function isUnalignedBatch(problem: GemmDesc, sms: number): boolean {
  const { m, n, k, batch = 1, a, b } = problem;
  const lengths = [a.isTransposed ? m : k, b.isTransposed ? k : n];
  const isUnaligned = lengths.some((length) => length % alignedElements !== 0);
  return batch > 1 && isUnaligned && !fillsSms(sizeInTiles(problem, tiles.square), sms, 1);
}

/** The config of a batch of small GEMMs with unaligned rows; undefined if cuBLASLt computes it. */
export function selectBatchedConfig(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): Sm90Config | undefined {
  const { a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !isUnalignedBatch(problem, device.parallelism) || !canImplement(problem)) return undefined;
  const isKMajor = { a: !a.isTransposed, b: b.isTransposed === true };
  const config = {
    ...{ element, tile: tiles.small, isKMajor, hasBias: bias !== undefined },
    ...halvesOf(problem),
  };
  if (!isMmaSyncMainloop(config)) return config;
  return isKMajor.b || bias ? undefined : { ...config, tile: tiles.mmaSync };
}

/** The tiles to try for a plain GEMM that has no single-wave tile. */
const candidateTiles = [tiles.large, tiles.small] as const;

/** With fewer CTAs than this share of the SMs, cuBLASLt's split-K wins. */
const minSmShareOfCandidates = 1 / 3;

/** The configs of a plain or batched GEMM that autotuning compares with cuBLASLt's algorithms. Their order gives the algorithm ids. */
export function listCandidates(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): readonly Sm90Config[] {
  const { m, n, batch = 1, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || a.isTransposed || !canImplement(problem, "any length")) return [];
  const isKMajor = { a: true, b: b.isTransposed === true };
  // With swapAB, B is the wgmma operand that cannot be transposed in shared memory.
  const wave = transposesB({ element, isKMajor }) ? undefined : singleWaveTile(problem, device.parallelism);
  // Boxes of an N-major B have 64 or 32 columns.
  const fitted = isKMajor.b ? fittedTile(problem, device.parallelism) : undefined;
  const whole = (wave ? [wave] : candidateTiles).filter(({ tileN }) => n >= tileN);
  const ofTiles = [...whole, ...(fitted ? [fitted] : [])]
    .filter(
      (tile) =>
        m >= tile.tileM && fillsSms(countCtas(problem, tile), device.parallelism, minSmShareOfCandidates),
    )
    .map((tile) => ({
      ...{ element, tile, isKMajor, hasBias: bias !== undefined, constantN: n, isUnbatched: batch === 1 },
      ...{ ...halvesOf(problem), ...prefetchOf(problem), ...clusterOf([problem], tile) },
    }));
  const pingPong =
    batch === 1 && canImplement(problem) ? pingPongConfig(device, problem, element) : undefined;
  return pingPong ? [...ofTiles, pingPong] : ofTiles;
}

/** Each row of CTAs transposes all of B in shared memory. From so many rows on, one pass that transposes B in advance costs less. */
const minTileRowsToTranspose = 6;

/** Operations of a K-major TF32 GEMM in the time in which a transposition moves one byte: 400 TFLOP/s and 2.4 TB/s on an H200. */
const flopsPerTransposedByte = 160;

/**
 * What a K-major copy of an operand saves, as a share of the time of the GEMM with K-major operands. Measured on an H200 with
 * `bench/gpu/gemm-shapes.ts`: 0.3 to 0.9 if both operands are MN-major, and 0 to 0.25 if only that one is.
 */
const savedShare = { ofTwo: 0.6, ofOne: 0.15 } as const;

/** True if a launch that copies the operand takes less time than the GEMM gains from a K-major one. */
function isWorthCopying(
  { parallelism }: Device,
  { m, n, k }: GemmDesc,
  copiedElements: number,
  gain: number,
): boolean {
  const launchedBytes = copyBytes(copiedElements) + launchBytes * parallelism;
  return gain * 2 * m * n * k > flopsPerTransposedByte * launchedBytes;
}

/** The traffic of a transposition. */
const copyBytes = (elements: number): number => 2 * elements * dtypes.f32.bytes;

/** True if the GEMM runs faster with a K-major B, because wgmma reads TF32 K-major only. */
export function prefersTransposed(device: Device, precision: GemmPrecision, problem: GemmDesc): boolean {
  const { m, n, k, a, b } = problem;
  if (elementOf(device, precision, problem) !== "tf32" || a.isTransposed || b.isTransposed) return false;
  const tileRows = Math.ceil(m / tiles.large.tileM);
  // A copy that takes less than a launch runs beside other calls.
  const isHidden = copyBytes(n * k) <= launchBytes * device.parallelism;
  // K becomes the row length of the transposed B, which TMA needs in multiples of 16 bytes.
  return (
    tileRows >= minTileRowsToTranspose &&
    (isHidden || isWorthCopying(device, problem, n * k, savedShare.ofOne)) &&
    (k * dtypes.f32.bytes) % tmaAlignment === 0 &&
    canImplement(problem) &&
    !isUnalignedBatch(problem, device.parallelism)
  );
}

/** The operand whose K-major copy makes a GEMM faster by more than the copy costs, if both are MN-major: the smaller one. */
export function selectOperandToTranspose(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): "a" | "b" | undefined {
  const { m, n, k, batch = 1, a, b } = problem;
  if (elementOf(device, precision, problem) !== "tf32" || !isWeightGradient({ a, b })) return undefined;
  // Rows of the copy begin on 16 bytes.
  if (batch !== 1 || (k * dtypes.f32.bytes) % tmaAlignment !== 0) return undefined;
  if (!isWorthCopying(device, problem, k * Math.min(m, n), savedShare.ofTwo)) return undefined;
  return m < n ? "a" : "b";
}

/** Two CTAs of a row of tiles form a cluster if every GEMM has an even number of N tiles. Split-K uses the cluster for K. */
export function clusterOf(
  problems: readonly Pick<GemmDesc, "n">[],
  { tileN, splitsK }: Sm90Tile,
): Pick<Sm90Config, "clusterN"> {
  const isEven = !splitsK && problems.every(({ n }) => Math.ceil(n / tileN) % 2 === 0);
  return isEven ? { clusterN: 2 } : {};
}

export function prefetchOf({ prefetchesB }: GemmDesc): Pick<Sm90Config, "prefetchesB"> {
  return prefetchesB ? { prefetchesB } : {};
}

/** The dtypes of C and of the bias that have 16 bits. */
export function halvesOf(problem: GemmDesc): Pick<Sm90Config, "resultDtype" | "biasDtype"> {
  const { dtype, resultDtype = dtype, bias, biasDtype = resultDtype } = problem;
  return {
    ...((resultDtype === "bf16" || resultDtype === "f16") && { resultDtype }),
    ...(bias && (biasDtype === "bf16" || biasDtype === "f16") && { biasDtype }),
  };
}

/** The element type of the tensor core instructions; undefined if native kernels do not support the GEMM's dtype. */
export function elementOf(
  { computeCapability }: Architecture,
  precision: GemmPrecision,
  { dtype }: GemmDesc,
): MmaElement | undefined {
  if (computeCapability !== sm90Capability) return undefined;
  if (dtype === "bf16" || dtype === "f16") return dtype;
  return dtype === "f32" && precision === "tf32" ? "tf32" : undefined;
}

/** TMA needs rows and matrices that begin on 16 bytes; the epilogue stores 16 bytes at a time. */
const tmaAlignment = 16;

/** True if a matrix and its rows begin on the addresses that TMA needs. */
export function isTmaAligned({ rowStride, storage }: GemmDesc["a"], bytes: number): boolean {
  return (rowStride * bytes) % tmaAlignment === 0 && storage.span.address % tmaAlignment === 0;
}

/** One k-tile of 16-bit elements. */
const minK = kTileBytes / dtypes.bf16.bytes;

/**
 * True if the native kernels support the GEMM. Only those that are specialised on N store a last vector of less than four columns. All need
 * aligned row strides.
 */
export function canImplement(
  problem: GemmDesc,
  rows: "whole vectors" | "any length" = "whole vectors",
): boolean {
  const { n, k, batch = 1, a, b, c, bias, biasBatchStride = 0, dtype, resultDtype = dtype } = problem;
  const { alpha = 1, beta = 0, activation, biasDtype = resultDtype } = problem;
  if (alpha !== 1 || beta !== 0 || activation || k < minK) return false;
  // A 16-bit result or bias needs operands of the same dtype.
  if ([resultDtype, ...(bias ? [biasDtype] : [])].some((other) => other !== "f32" && other !== dtype))
    return false;
  const isAligned = ({ batchStride = 0, ...operand }: GemmDesc["a"], bytes: number): boolean =>
    isTmaAligned(operand, bytes) && (batch === 1 || (batchStride * bytes) % tmaAlignment === 0);
  const { bytes } = dtypes[dtype];
  const isBiasAligned =
    !bias || (bias.span.address % (4 * dtypes[biasDtype].bytes) === 0 && biasBatchStride % 4 === 0);
  return (
    (n % 8 === 0 || rows === "any length") &&
    isBiasAligned &&
    isAligned(a, bytes) &&
    isAligned(b, bytes) &&
    isAligned(c, dtypes[resultDtype].bytes)
  );
}
