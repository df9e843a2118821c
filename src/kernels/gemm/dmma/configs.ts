/**
 * Which f32 products are our own on a GPU, and in which tiles. Hopper multiplies doubles on its tensor cores as fast as its
 * other units multiply floats, and there tiles come closer to what the machine can do. As doubles the products are exact,
 * and the one rounding is that of the result.
 */

import type { DeviceInfo, GemmPrecision } from "../../../driver/index.js";
import type { GemmDesc } from "../desc.js";

/** Hopper: there doubles are as fast as floats. */
export const dmmaCapability = "9.0";

/** What a block makes of C, and how its warps share that. */
export interface DmmaTile {
  readonly rows: number;
  readonly columns: number;
  /** Terms that are brought to shared memory at once, and how often they are there: in use, and on their way. */
  readonly depth: number;
  readonly stages: number;
  readonly warpsDown: number;
  readonly warpsAcross: number;
  /** What an element costs, as a multiple of what the tensor cores take for it: alone on a multiprocessor, and with others. */
  readonly alone: number;
  readonly shared: number;
}

/** The costs are measured, on an H200, on the products of a CrossAsset step. */
export const dmmaTiles: readonly DmmaTile[] = [
  { rows: 64, columns: 64, depth: 16, stages: 4, warpsDown: 2, warpsAcross: 2, alone: 1.25, shared: 1.25 },
  { rows: 48, columns: 64, depth: 32, stages: 3, warpsDown: 1, warpsAcross: 4, alone: 1.75, shared: 1.35 },
  { rows: 32, columns: 64, depth: 32, stages: 3, warpsDown: 1, warpsAcross: 4, alone: 1.96, shared: 1.47 },
];

/** How an operand lies: `along` where its terms lie side by side, and how many floats of it can be copied at once. */
export interface DmmaOperand {
  readonly isKMajor: boolean;
  readonly chunk: 1 | 2 | 4;
}

export interface DmmaConfig {
  readonly tile: DmmaTile;
  readonly a: DmmaOperand;
  readonly b: DmmaOperand;
  /** Can four elements of C that lie side by side be stored at once? */
  readonly storesFours: boolean;
  readonly hasBias: boolean;
  readonly readsC: boolean;
}

/** With fewer terms than this a library's kernel is done before our first tile has come. */
const minTerms = 32;

/** Blocks for some of the multiprocessors: a product that has fewer is better cut along its terms, by a library. */
const minShare = 0.2;

/** What decides about tiles on a device. */
type Device = Pick<DeviceInfo, "computeCapability" | "parallelism">;

/**
 * The form of products that one launch makes, or nothing where they are not ours to make or don't go together. Whatever the
 * form, the same product has the same bits: its terms are added up in their order.
 */
export function dmmaConfigOf(
  device: Device,
  precision: GemmPrecision,
  problems: readonly GemmDesc[],
): DmmaConfig | undefined {
  if (device.computeCapability !== dmmaCapability) return undefined;
  if (precision !== "f32") return undefined;
  const [first] = problems;
  if (!first || !problems.every((one) => canImplement(one) && goesWith(one, first))) return undefined;
  const tile = bestTile(device.parallelism, problems);
  if (!tile) return undefined;
  const chunk = (side: "a" | "b" | "c"): Chunk =>
    Math.min(...problems.map((one) => chunkOf(one[side]))) as Chunk;
  return {
    tile,
    a: { isKMajor: !first.a.isTransposed, chunk: chunk("a") },
    b: { isKMajor: first.b.isTransposed === true, chunk: chunk("b") },
    storesFours: chunk("c") === 4,
    hasBias: first.bias !== undefined,
    readsC: (first.beta ?? 0) !== 0,
  };
}

/** How many blocks there are in a tiling of C, once or for a batch. */
export function dmmaBlocks(
  { m, n, batch = 1 }: Pick<GemmDesc, "m" | "n" | "batch">,
  { rows, columns }: DmmaTile,
): number {
  return Math.ceil(m / rows) * Math.ceil(n / columns) * batch;
}

function canImplement(problem: GemmDesc): boolean {
  const { dtype, resultDtype = dtype, k, a, b } = problem;
  // Float by float our copies take longer than what they are for.
  return dtype === "f32" && resultDtype === "f32" && k >= minTerms && chunkOf(a) > 1 && chunkOf(b) > 1;
}

/** What one text of a kernel can't have both ways; and blocks that are to end together have as many terms. */
function goesWith(one: GemmDesc, other: GemmDesc): boolean {
  const traitsOf = ({ k, a, b, bias, beta = 0 }: GemmDesc) =>
    [k, a.isTransposed === true, b.isTransposed === true, bias !== undefined, beta !== 0].join();
  return traitsOf(one) === traitsOf(other);
}

/** The tile with which the busiest multiprocessor is done first. */
function bestTile(multiprocessors: number, problems: readonly GemmDesc[]): DmmaTile | undefined {
  let best: { readonly tile: DmmaTile; readonly time: number } | undefined;
  for (const tile of dmmaTiles) {
    const blocks = problems.reduce((sum, problem) => sum + dmmaBlocks(problem, tile), 0);
    if (blocks < minShare * multiprocessors) continue;
    const rounds = Math.ceil(blocks / multiprocessors);
    const time = rounds * tile.rows * tile.columns * (rounds === 1 ? tile.alone : tile.shared);
    if (!best || time < best.time) best = { tile, time };
  }
  return best?.tile;
}

type Chunk = DmmaOperand["chunk"];

function chunkOf({ rowStride, batchStride = 0, storage }: GemmDesc["a"]): Chunk {
  const fits = (floats: number): boolean =>
    rowStride % floats === 0 && batchStride % floats === 0 && storage.span.address % (4 * floats) === 0;
  return fits(4) ? 4 : fits(2) ? 2 : 1;
}
