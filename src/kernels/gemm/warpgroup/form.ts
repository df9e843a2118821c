/**
 * Which products are our own kernels' work on Hopper's tensor cores, a warpgroup of four warps at a time, and in which tiles. A
 * library multiplies one product of that kind as fast or faster, but it makes no group of them in one launch, and what
 * stands behind a product costs it more than a kernel of its own.
 */

import type { DeviceInfo, ProductPrecision } from "../../../driver/index.js";
import { dtypes } from "../../dtypes.js";
import type { RowKernel } from "../../ir.js";
import { factsOf } from "../../row-facts.js";
import type { GemmOutline } from "../problem.js";

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
}

/** The first is for blocks with few terms, the second for those with many, which its deeper queue keeps fed. */
const tiles = {
  large: { rows: 192, columns: 128, stages: 4, down: 3, across: 1 },
  square: { rows: 128, columns: 128, stages: 6, down: 2, across: 1 },
} as const satisfies Readonly<Record<string, WarpgroupTile>>;

export const warpgroupTiles: readonly WarpgroupTile[] = Object.values(tiles);

export interface WarpgroupForm {
  readonly element: WarpgroupElement;
  readonly tile: WarpgroupTile;
  /** Do an operand's terms lie side by side? */
  readonly isAlong: { readonly a: boolean; readonly b: boolean };
  readonly hasBias: boolean;
}

/** Elementwise work on a product's result, while it is still in registers. */
export interface Finish {
  readonly kernel: RowKernel;
  /** Which of the kernel's inputs is the product's result. */
  readonly product: number;
  /** For each input: the output that it reads back, which an earlier stage has stored; nothing for most. */
  readonly readBack?: readonly (number | undefined)[];
  /** Does somebody else read the result, so that it is stored as well? */
  readonly keepsResult: boolean;
}

type Device = Pick<DeviceInfo, "kind" | "computeCapability">;

/**
 * The form of weight gradients that one launch makes, or nothing where they don't go together or one alone fills as much of the
 * device: their terms are the many rows of a batch, and lie apart from each other in both operands.
 */
export function groupFormOf(
  device: Device,
  precision: ProductPrecision,
  problems: readonly GemmOutline[],
): WarpgroupForm | undefined {
  const [first] = problems;
  const element = first && elementOf(device, precision, first);
  // TF32 would have to turn both operands round on their way, which takes longer than the products.
  if (!first || !element || element === "tf32") return undefined;
  const areGradients = problems.every(
    (one) =>
      isOurs(one, element) &&
      one.dtype === first.dtype &&
      one.k >= 1024 &&
      one.a.isTransposed &&
      !one.b.isTransposed &&
      !one.bias,
  );
  return areGradients
    ? { element, tile: tiles.square, isAlong: { a: false, b: false }, hasBias: false }
    : undefined;
}

/** With more terms than this the library is ahead by more than a pass over the result takes. */
const mostTermsToFinish = 512;

/** Smaller results stay in the cache, where reading them once more costs next to nothing. */
const leastToFinish = 1 << 20;

/** The form of a product with elementwise work on its result, or nothing where the two had better be apart. */
export function finishFormOf(
  device: Device,
  precision: ProductPrecision,
  problem: GemmOutline,
  { kernel, product }: Finish,
): WarpgroupForm | undefined {
  const { m, n, k, c, a, b, bias } = problem;
  const element = elementOf(device, precision, problem);
  if (!element || !isOurs(problem, element) || a.isTransposed) return undefined;
  if (k > mostTermsToFinish || m * n < leastToFinish || c.rowStride !== n) return undefined;
  const { isElementwise, usesPlace, readsAtIndex } = factsOf(kernel);
  if (!isElementwise || usesPlace || readsAtIndex || kernel.inputs[product] !== "f32") return undefined;
  const isAlong = { a: true, b: b.isTransposed === true };
  return { element, tile: tiles.large, isAlong, hasBias: bias !== undefined };
}

function elementOf(
  { kind, computeCapability }: Device,
  precision: ProductPrecision,
  { dtype }: GemmOutline,
): WarpgroupElement | undefined {
  if (kind !== "cuda" || computeCapability !== warpgroupCapability) return undefined;
  if (dtype === "bf16" || dtype === "f16") return dtype;
  return dtype === "f32" && precision === "tf32" ? "tf32" : undefined;
}

/** Copies and stores move 16 bytes at a time, so that rows begin and end on them. */
function isOurs(problem: GemmOutline, element: WarpgroupElement): boolean {
  const {
    m,
    n,
    k,
    batch = 1,
    a,
    b,
    c,
    dtype,
    resultDtype = dtype,
    alpha = 1,
    beta = 0,
    activation,
  } = problem;
  if (batch !== 1 || alpha !== 1 || beta !== 0 || activation || resultDtype !== "f32" || k < 64) return false;
  const elements = element === "tf32" ? 4 : 8;
  const fits = ({ rowStride, storage }: GemmOutline["a"], bytes: number): boolean =>
    (rowStride * bytes) % 16 === 0 && storage.span.address % 16 === 0;
  const areLong = [a.isTransposed ? m : k, b.isTransposed ? k : n].every((length) => length % elements === 0);
  const { bytes } = dtypes[dtype];
  return areLong && n % 8 === 0 && fits(a, bytes) && fits(b, bytes) && fits(c, 4);
}

export function warpgroupBlocks(
  { m, n }: Pick<GemmOutline, "m" | "n">,
  { rows, columns }: WarpgroupTile,
): number {
  return Math.ceil(m / rows) * Math.ceil(n / columns);
}
