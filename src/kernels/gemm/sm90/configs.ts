/**
 * Which products are our own kernels' work on Hopper's tensor cores, a warpgroup of four warps at a time, and in which tiles. A
 * library multiplies one product of that kind as fast or faster, but it makes no group of them in one launch, and what
 * stands behind a product costs it more than a kernel of its own.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import type { RowKernel } from "../../../ir/index.js";
import { dtypes, factsOf } from "../../../ir/index.js";
import { storesColsums } from "../../codegen/cuda/column-partials.js";
import { type GemmDesc, isGradient, isUnalignedBatch } from "../desc.js";

/** Hopper: its successors multiply otherwise. */
export const warpgroupCapability = "9.0";

/** What is multiplied: half floats as they are, floats with the bits that TF32 has. */
export type WarpgroupElement = "bf16" | "f16" | "tf32";

/** What a block makes of C, by how many warpgroups, and how often a tile's terms are there: in use, and on their way. */
export interface WarpgroupTile {
  readonly rows: number;
  readonly columns: number;
  readonly stages: number;
  readonly down: number;
  readonly across: number;
  /** Do the two blocks of a cluster have half of the terms each? */
  readonly isSplit?: boolean;
  /** Does a warpgroup have 64 of C's columns instead of rows? Then a tile may have any eights of rows. */
  readonly swapsAB?: boolean;
}

/**
 * Large ones are for results with few terms; square ones for those with many, which a deeper queue keeps fed; small ones where there
 * would be too few blocks of the others.
 */
const tiles = {
  large: { rows: 192, columns: 128, stages: 4, down: 3, across: 1 },
  square: { rows: 128, columns: 128, stages: 6, down: 2, across: 1 },
  small: { rows: 64, columns: 128, stages: 4, down: 1, across: 2 },
  /** For single warps, of which a multiprocessor needs those of several blocks. */
  quarters: { rows: 64, columns: 64, stages: 4, down: 1, across: 1 },
} as const satisfies Readonly<Record<string, WarpgroupTile>>;

export const warpgroupTiles: readonly WarpgroupTile[] = Object.values(tiles);

/** For floats whose terms lie apart in both operands, and are many. */
export const splitKTile: WarpgroupTile = {
  rows: 256,
  columns: 128,
  stages: 4,
  down: 2,
  across: 1,
  isSplit: true,
};

/** More sums than these are too many for a block's registers, and more lines for one instruction. */
const [maxAccumulators, maxLines] = [256 * 128, 256];

/**
 * Of the flipped tiles of which there are no more than multiprocessors, so that all are made at once, the one that has the least to
 * bring. Nothing where each would be too large.
 */
export function waveTileOf(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  parallelism: number,
): WarpgroupTile | undefined {
  let best: WarpgroupTile | undefined;
  for (let columns = 64; columns <= maxLines && columns - 64 < n; columns += 64) {
    const down = Math.floor(parallelism / (batch * Math.ceil(n / columns)));
    const rows = 8 * Math.ceil(m / (8 * down));
    if (rows > maxLines || rows * columns > maxAccumulators) continue;
    if (best && rows + columns >= best.rows + best.columns) continue;
    best = { rows, columns, stages: 8, down: 1, across: columns / 64, swapsAB: true };
  }
  return best;
}

/** How many of C's lines one instruction makes 64 sums of. */
export function widthOf({ rows, columns, across, swapsAB }: WarpgroupTile): number {
  return swapsAB ? rows : columns / across;
}

/** Does A go through registers, as its terms lie apart, and is B turned round by warps of its own? */
export function isRsMainloop({ element, tile, isKMajor }: Sm90Config): boolean {
  return element === "tf32" && !isKMajor.a && !isKMajor.b && tile.isSplit === true;
}

/** Few floats whose terms lie apart are not for warpgroups: each warp multiplies them by itself. */
export function isMmaSyncMainloop(form: Sm90Config): boolean {
  return form.element === "tf32" && !form.isKMajor.a && !isRsMainloop(form);
}

/** Are floats on the right side turned round, as they don't lie along their terms? */
export function transposesB({ element, isKMajor }: Pick<Sm90Config, "element" | "isKMajor">): boolean {
  return element === "tf32" && !isKMajor.b;
}

export interface Sm90Config {
  readonly element: WarpgroupElement;
  readonly tile: WarpgroupTile;
  /** Do an operand's terms lie side by side? */
  readonly isKMajor: { readonly a: boolean; readonly b: boolean };
  readonly hasBias: boolean;
  /** What C is stored as, rounded once: f32 unless given. The bias is f32 either way. */
  readonly resultDtype?: "f32" | "bf16" | "f16";
  /** How many columns C has, where the code is for so many alone. */
  readonly columns?: number;
  /** Is it one product, and no batch of them? */
  readonly isSingle?: boolean;
  /** Is B fetched before the launch before has ended? */
  readonly prefetchesB?: boolean;
  /** Are there blocks beside each other, with tiles of the same rows, that share a part of the GPU, and so what they bring of A? */
  readonly isClustered?: boolean;
}

/** Elementwise work on a product's result, while it is still in registers. */
export interface Epilogue {
  readonly kernel: RowKernel;
  /** Which of the kernel's inputs is the product's result. */
  readonly product: number;
  /** For each input: the output that it reads back, which an earlier stage has stored; nothing for most. */
  readonly forwarded?: readonly (number | undefined)[];
  /** Does somebody else read the result, so that it is stored as well? */
  readonly storesC: boolean;
}

type Device = Pick<DeviceInfo, "computeCapability">;

/** The form of weight gradients that one launch makes, or nothing where they are none or don't go together. */
export function groupConfigOf(
  device: Device,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): Sm90Config | undefined {
  const [first] = problems;
  const element = first && elementOf(device, precision, first);
  if (!first || !element) return undefined;
  const areGradients = problems.every(
    (one) =>
      isGradient(one) &&
      canImplement(one) &&
      one.dtype === first.dtype &&
      !one.bias &&
      !halvesOf(one).resultDtype,
  );
  const tile = element === "tf32" ? splitKTile : tiles.square;
  const form = {
    element,
    tile,
    isKMajor: { a: false, b: false },
    hasBias: false,
    ...clusterOf(problems, tile),
  };
  return areGradients ? form : undefined;
}

/**
 * Which products are finished, in large tiles and in others. With more terms the library is ahead by more than a pass over the result takes;
 * smaller results stay in the cache, where reading them once more costs next to nothing. Of a result that is worth small tiles
 * the pass is mostly its launch, which is worth more terms.
 */
const finishing = {
  large: { maxTerms: 512, minElements: 1 << 20 },
  small: { maxTerms: 768, minElements: 1 << 19 },
} as const;

/** Large tiles that are fewer than this share of the multiprocessors leave too many of them idle. */
const minShareForEpilogue = 1 / 2;

/** The form of a product with elementwise work on its result, or nothing where the two had better be apart. */
export function epilogueConfigOf(
  device: Device & Pick<DeviceInfo, "parallelism">,
  precision: GemmPrecision,
  problem: GemmDesc,
  { kernel, product }: Epilogue,
): Sm90Config | undefined {
  const { m, n, k, batch = 1, c, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !canImplement(problem) || a.isTransposed || batch !== 1) return undefined;
  const isKMajor = { a: true, b: b.isTransposed === true };
  const isWide = warpgroupBlocks(problem, tiles.large) >= minShareForEpilogue * device.parallelism;
  // Floats that are turned round in small tiles are turned more often.
  const isForLarge = isWide || transposesB({ element, isKMajor }) || onlyMoves(kernel);
  const { maxTerms, minElements } = isForLarge ? finishing.large : finishing.small;
  const tile: WarpgroupTile = isForLarge
    ? tiles.large
    : (waveTileOf(problem, device.parallelism) ?? tiles.small);
  if (k > maxTerms || m * n < minElements || c.rowStride !== n) return undefined;
  const { usesPlace, readsAtIndex } = factsOf(kernel);
  if (!isOfElements(kernel) || usesPlace || readsAtIndex || kernel.inputs[product] !== "f32")
    return undefined;
  if (storesColsums(kernel) && (tile.swapsAB || widthOf(tile) !== accumulatorWidth)) return undefined;
  const form = { element, tile, isKMajor, hasBias: bias !== undefined, columns: n, isSingle: true } as const;
  return { ...form, ...halvesOf(problem), ...earlinessOf(problem), ...clusterOf([problem], tile) };
}

/** Columns are added up where a warp stores a row at a time, four columns a lane. */
const accumulatorWidth = 128;

/** Does a kernel only store elements, and add up columns of them? */
function isOfElements({ stages, outputs }: RowKernel): boolean {
  return stages.every((stage) => stage.kind === "store" && outputs[stage.output]?.per !== "row");
}

/** Does a kernel do no more than convert what it loads? A library stores half floats itself. */
function onlyMoves({ stages }: RowKernel): boolean {
  return stages.every(({ value }) => (value.kind === "convert" ? value.a : value).kind === "load");
}

/** The form of a batch of small products with odd rows. */
export function batchConfigOf(
  device: Device,
  precision: GemmPrecision,
  problem: GemmDesc,
): Sm90Config | undefined {
  const { a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !isUnalignedBatch(problem) || !canImplement(problem)) return undefined;
  const isKMajor = { a: !a.isTransposed, b: b.isTransposed === true };
  const form = { element, tile: tiles.small, isKMajor, hasBias: bias !== undefined, ...halvesOf(problem) };
  if (!isMmaSyncMainloop(form)) return form;
  return isKMajor.b || bias ? undefined : { ...form, tile: tiles.quarters };
}

/** In which tiles a product by itself is tried that no tile of one wave is for. */
const plainTiles = [tiles.large, tiles.small] as const;

/** With fewer blocks than this share of the multiprocessors nothing is won. */
const minShare = 1 / 3;

/**
 * The forms of a product by itself or of a batch, for callers that measure whether one is faster than the library's. The place of each is its
 * number among our own choices.
 */
export function plainConfigsOf(
  device: Device & Pick<DeviceInfo, "parallelism">,
  precision: GemmPrecision,
  problem: GemmDesc,
): readonly Sm90Config[] {
  const { m, n, batch = 1, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || a.isTransposed || !canImplement(problem)) return [];
  const isKMajor = { a: true, b: b.isTransposed === true };
  // Floats are not turned on the side that a warpgroup has 64 lines of.
  const wave = transposesB({ element, isKMajor }) ? undefined : waveTileOf(problem, device.parallelism);
  return (wave ? [wave] : plainTiles)
    .filter(
      (tile) =>
        m >= tile.rows &&
        n >= tile.columns &&
        warpgroupBlocks(problem, tile) >= minShare * device.parallelism,
    )
    .map((tile) => ({
      ...{ element, tile, isKMajor, hasBias: bias !== undefined, columns: n, isSingle: batch === 1 },
      ...{ ...halvesOf(problem), ...earlinessOf(problem), ...clusterOf([problem], tile) },
    }));
}

/** Fewer rows don't pay for a pass over the weights. */
const minRowsToTranspose = 1024;

/** Had a product better have its right side turned round, along its terms? Tensor cores read floats no other way. */
export function prefersTransposed(device: Device, precision: GemmPrecision, problem: GemmDesc): boolean {
  const { m, k, a, b } = problem;
  const isOwn = canImplement(problem) && !isUnalignedBatch(problem);
  const isApart = !a.isTransposed && !b.isTransposed && k % 4 === 0 && m >= minRowsToTranspose;
  return isApart && isOwn && elementOf(device, precision, problem) === "tf32";
}

/** Tiles go in pairs where each product has an even number of them in a row; who shares terms has another neighbour. */
function clusterOf(
  problems: readonly Pick<GemmDesc, "n">[],
  { columns, isSplit }: WarpgroupTile,
): Pick<Sm90Config, "isClustered"> {
  const isClustered = !isSplit && problems.every(({ n }) => Math.ceil(n / columns) % 2 === 0);
  return isClustered ? { isClustered } : {};
}

function earlinessOf({ prefetchesB }: GemmDesc): Pick<Sm90Config, "prefetchesB"> {
  return prefetchesB ? { prefetchesB } : {};
}

/** What C is stored as, where that is half floats. */
function halvesOf({ dtype, resultDtype = dtype }: GemmDesc): Pick<Sm90Config, "resultDtype"> {
  return resultDtype === "bf16" || resultDtype === "f16" ? { resultDtype } : {};
}

function elementOf(
  { computeCapability }: Device,
  precision: GemmPrecision,
  { dtype }: GemmDesc,
): WarpgroupElement | undefined {
  if (computeCapability !== warpgroupCapability) return undefined;
  if (dtype === "bf16" || dtype === "f16") return dtype;
  return dtype === "f32" && precision === "tf32" ? "tf32" : undefined;
}

/** Copies and stores move 16 bytes at a time, so that rows and matrices of a batch begin on them, and rows of C end on them. */
function canImplement(problem: GemmDesc): boolean {
  const { n, k, batch = 1, a, b, c, bias, biasBatchStride = 0, dtype, resultDtype = dtype } = problem;
  const { alpha = 1, beta = 0, activation, biasDtype = resultDtype } = problem;
  if (alpha !== 1 || beta !== 0 || activation || k < 64) return false;
  // Half floats are stored of half floats only.
  if ((resultDtype !== "f32" && resultDtype !== dtype) || (bias && biasDtype !== "f32")) return false;
  const fits = ({ rowStride, batchStride = 0, storage }: GemmDesc["a"], bytes: number): boolean =>
    [rowStride, batch === 1 ? 0 : batchStride].every((stride) => (stride * bytes) % 16 === 0) &&
    storage.span.address % 16 === 0;
  const { bytes } = dtypes[dtype];
  const fitsBias = !bias || (bias.span.address % 16 === 0 && biasBatchStride % 4 === 0);
  return n % 8 === 0 && fitsBias && fits(a, bytes) && fits(b, bytes) && fits(c, dtypes[resultDtype].bytes);
}

export function warpgroupBlocks(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { rows, columns, isSplit }: WarpgroupTile,
): number {
  return Math.ceil(m / rows) * Math.ceil(n / columns) * batch * (isSplit ? 2 : 1);
}
