/**
 * Skinny GEMMs: a few rows of activations times weights [N, K], as in generation. Their time is that of reading the weights. The configs say
 * how the weights are divided over CTAs and warps; all of them add in an order that depends on the config and the shape alone.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import { dtypes } from "../../../ir/index.js";
import {
  maxSharedBytesPerBlock,
  maxVectorBytes,
  type SharedMemoryFacts,
  warpSize,
} from "../../cost-model.js";
import type { GemmDesc, GemmInputDtype } from "../desc.js";

export type SkinnyElement = "bf16" | "f16" | "tf32";

export interface SkinnyConfig {
  readonly element: SkinnyElement;
  /** M and K are constants of the code. */
  readonly m: number;
  readonly k: number;
  /** They split K. */
  readonly warps: number;
  /** Groups of eight rows of the weights that a CTA multiplies at a time. */
  readonly groups: number;
  /** CTAs that an SM shall hold at a time. Those of the next launch need room beside them. */
  readonly ctasPerSm: number;
  readonly hasBias: boolean;
  readonly resultDtype: GemmInputDtype;
  readonly biasDtype: GemmInputDtype;
  /** A is loaded to registers, a step at a time, instead of to shared memory at once. It has at most eight rows. */
  readonly streamsA: boolean;
  /** The weights are loaded before the grid dependency wait. */
  readonly prefetchesB: boolean;
}

type Device = Pick<DeviceInfo, "computeCapability" | "parallelism"> & SharedMemoryFacts;

/** Rows of the activations. With more, tensor cores and shared memory would be as busy as device memory. */
export const maxSkinnyRows = 32;
/** Rows of A that fit the lower half of an mma. */
const maxStreamedRows = 8;
/** Rows up to which one launch computes several GEMMs of the same activations without a comparison. */
const maxGroupedRows = 8;

/** Bytes of a row of the weights that a warp multiplies in a step. */
export const stepBytes = 64;
const maxStepsInFlight = 8;
/** Vectors of weights in the registers of a lane. */
const maxVectorsInFlight = 16;
/** Threads of an SM: half of what the registers allow, so that the next launch can prefetch meanwhile; and all. */
const [sharedThreads, allThreads] = [512, 1024];
/** Threads of an SM that have registers for a step's rows of A and for its weights. */
const streamingThreads = 640;

/** The steps of a warp along K: chunks of as many as have their weights in registers at a time. */
export function countSteps({
  k,
  element,
  warps,
  groups,
}: Pick<SkinnyConfig, "k" | "element" | "warps" | "groups">): {
  readonly chunks: number;
  readonly inFlight: number;
} {
  const steps = Math.ceil((k * elementBytes(element)) / stepBytes / warps);
  const chunks = Math.ceil(steps / Math.min(maxStepsInFlight, maxVectorsInFlight / groups));
  return { chunks, inFlight: Math.ceil(steps / chunks) };
}

export const elementBytes = (element: SkinnyElement): number => (element === "tf32" ? 4 : 2);

/** The bytes of a row of activations in shared memory: rows of eight lanes' vectors in different banks. */
export function rowBytesOf(config: Pick<SkinnyConfig, "k" | "element" | "warps" | "groups">): number {
  const { chunks, inFlight } = countSteps(config);
  const bytes = chunks * inFlight * config.warps * stepBytes;
  return bytes % (2 * stepBytes) === 0 ? bytes + stepBytes : bytes;
}

/** The activations, and the sums of each warp, twice: those of the next tile are written while these are read. */
export function skinnySharedBytes(
  config: Pick<SkinnyConfig, "k" | "element" | "warps" | "m" | "groups" | "streamsA">,
): number {
  const { m, warps, groups, streamsA } = config;
  return (streamsA ? 0 : m * rowBytesOf(config)) + 2 * warps * m * groups * 8 * 4;
}

/** The CTAs of a GEMM, if each had one tile. */
export function countTiles({ n, batch = 1 }: Pick<GemmDesc, "n" | "batch">, groups: number): number {
  return Math.ceil(n / (8 * groups)) * batch;
}

/** The configs of a GEMM, in the order of its algorithms; none if the kernel does not support it. */
export function listSkinnyConfigs(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): readonly SkinnyConfig[] {
  const { m, k, dtype, resultDtype = dtype, bias, biasDtype = resultDtype, prefetchesB = false } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !canImplement(problem)) return [];
  return shapesFor(device, { m, k, element }, (groups) => countTiles(problem, groups)).map((shape) => ({
    ...{ element, m, k, ...shape },
    ...{ hasBias: bias !== undefined, resultDtype, biasDtype, prefetchesB },
  }));
}

/** The configs of GEMMs that share their activations, in one launch. The caller knows that A is the same. */
export function listGroupedSkinnyConfigs(
  device: Device,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): readonly SkinnyConfig[] {
  const [first, ...others] = problems;
  if (!first || first.m > maxGroupedRows) return [];
  const prefetchesB = problems.every((problem) => problem.prefetchesB);
  const [own, ...rest] = problems.map(
    (problem) => listSkinnyConfigs(device, precision, { ...problem, prefetchesB })[0],
  );
  const dtypesOf = (config: SkinnyConfig | undefined): string =>
    `${config?.hasBias} ${config?.resultDtype} ${config?.biasDtype}`;
  const isAlike = ({ m, k, a, dtype }: GemmDesc): boolean =>
    m === first.m && k === first.k && dtype === first.dtype && a.rowStride === first.a.rowStride;
  if (!own || !others.every(isAlike) || !rest.every((config) => dtypesOf(config) === dtypesOf(own)))
    return [];
  const tiles = (groups: number): number =>
    problems.reduce((sum, problem) => sum + countTiles(problem, groups), 0);
  // The first one is used without a comparison, so it is the one that keeps all SMs busy for most of its time.
  return shapesFor(device, own, tiles)
    .map((shape) => ({ ...own, ...shape }))
    .sort((one, other) => busyShare(device, other, tiles) - busyShare(device, one, tiles));
}

type Shape = Pick<SkinnyConfig, "warps" | "groups" | "ctasPerSm" | "streamsA">;

/** How the tiles of one launch may be divided over CTAs and warps, as far as their shared memory suffices. */
function shapesFor(
  device: Device,
  sizes: Pick<SkinnyConfig, "m" | "k" | "element">,
  tilesWith: (groups: number) => number,
): readonly Shape[] {
  const { m, k, element } = sizes;
  const steps = Math.ceil((k * elementBytes(element)) / stepBytes);
  const warps = [2, 4, 8].find((count) => steps <= count * maxStepsInFlight) ?? 16;
  const groups = m > maxStreamedRows ? 2 : 1;
  const tiles = tilesWith(groups);
  const filling = (shape: Pick<Shape, "warps" | "groups">, threads: number): Shape => ({
    ...{ ...shape, streamsA: false },
    ctasPerSm: Math.max(1, threads / (shape.warps * warpSize)),
  });
  const maxBytes = maxSharedBytesPerBlock(device);
  const sharedBytes = (shape: Shape): number => skinnySharedBytes({ ...sizes, ...shape });
  const fillsShare = tiles > (device.parallelism * sharedThreads) / (warps * warpSize);
  const perSm = Math.ceil(tiles / device.parallelism);
  // A CTA for each tile, all at the same time: no SM waits for a last round of tiles.
  const inOneRound = [allThreads, sharedThreads].flatMap((threads): readonly Shape[] => {
    const fitting = [16, 8, 4, 2].find((count) => count <= steps && perSm * count * warpSize <= threads);
    if (fitting === undefined) return [];
    const shape = { warps: fitting, groups, ctasPerSm: perSm };
    return [true, false]
      .map((streamsA) => ({ ...shape, streamsA }))
      .filter(
        (one) => !one.streamsA || (m <= maxStreamedRows && perSm * fitting * warpSize <= streamingThreads),
      )
      .filter((one) => perSm * sharedBytes(one) <= maxBytes);
  });
  const shapes = [
    ...inOneRound,
    filling({ warps, groups }, sharedThreads),
    ...(fillsShare && groups === 1 ? [filling({ warps, groups }, allThreads)] : []),
    ...(groups === 1 ? [filling({ warps, groups: 2 }, sharedThreads)] : []),
    filling({ warps: warps === 16 ? 8 : 2 * warps, groups }, sharedThreads),
  ];
  const key = (shape: Shape): string => `${shape.warps} ${shape.groups} ${shape.ctasPerSm} ${shape.streamsA}`;
  const different = [...new Map(shapes.map((shape) => [key(shape), shape])).values()];
  return different.filter((shape) => sharedBytes(shape) <= maxBytes);
}

/** The share of its time in which a launch has work for all of its CTAs. */
function busyShare(
  device: Device,
  { groups, ctasPerSm }: Shape,
  tilesWith: (groups: number) => number,
): number {
  const tiles = tilesWith(groups);
  const ctas = Math.min(tiles, ctasPerSm * device.parallelism);
  return tiles / (Math.ceil(tiles / ctas) * ctas);
}

function elementOf(
  { computeCapability = "0" }: Device,
  precision: GemmPrecision,
  { dtype }: GemmDesc,
): SkinnyElement | undefined {
  if (Number.parseInt(computeCapability, 10) < 8) return undefined;
  if (dtype === "bf16" || dtype === "f16") return dtype;
  return dtype === "f32" && precision === "tf32" ? "tf32" : undefined;
}

/** True if rows of the weights and of the activations begin on 16 bytes, and all matrices of a batch share their activations. */
function canImplement(problem: GemmDesc): boolean {
  const { m, n, k, batch = 1, a, b, dtype, alpha = 1, beta = 0, activation } = problem;
  const { bytes } = dtypes[dtype];
  const strides = [
    k,
    ...(m > 1 ? [a.rowStride] : []),
    ...(n > 1 ? [b.rowStride] : []),
    ...(batch > 1 ? [b.batchStride ?? 0] : []),
  ];
  const offsets = [
    ...strides.map((stride) => stride * bytes),
    a.storage.span.address,
    b.storage.span.address,
  ];
  const isAligned = offsets.every((offset) => offset % maxVectorBytes === 0);
  const isPlain = alpha === 1 && beta === 0 && !activation;
  const isShared = batch === 1 || (a.batchStride ?? 0) === 0;
  const hasLayout = !a.isTransposed && b.isTransposed === true;
  return isAligned && isPlain && isShared && hasLayout && k > 0 && m <= maxSkinnyRows && m < n;
}
