/**
 * The form for short sequences: a block is one pair of batch and head, and holds all of its rows in shared memory. The
 * sizes are printed into the code as constants. This file decides whether a problem is small enough, and how its
 * threads share the work.
 */

import type { GemmDtype } from "../../gemm/element.js";
import type { AttentionShape } from "../problem.js";
import { lanesOf } from "./element.js";

/** What every device gives a block without being asked twice. */
const sharedBytes = 48 * 1024;
const vectorBytes = 16;
const warp = 32;
const mostThreads = 256;
/** How many vectors a thread holds at most on their way to shared memory. */
const mostVectors = sharedBytes / vectorBytes / mostThreads;

/** How many rows, or columns, a thread sums at once where their weights differ. */
export const targetTile = 4;

export type Direction = "forward" | "backward";

/** Counts that are printed under their names. */
export interface SmallPlan {
  readonly rows: number;
  readonly columns: number;
  readonly width: number;
  readonly valueWidth: number;
  readonly threads: number;
  /** Vectors in a row of queries and keys, in one of values, in one of scores, and in one of transposed scores. */
  readonly widthVectors: number;
  readonly valueVectors: number;
  readonly columnVectors: number;
  readonly rowVectors: number;
  /** Scores of `tileRows` × `tileColumns` are summed together, by `split` neighbouring lanes. */
  readonly tileRows: number;
  readonly tileColumns: number;
  readonly split: number;
  /** How many lanes share a row of scores in softmax. */
  readonly rowLanes: number;
}

/** Undefined where a pair takes more shared memory than a block has. */
export function planSmall(
  direction: Direction,
  dtype: GemmDtype,
  { rows, columns, width, valueWidth }: AttentionShape,
): SmallPlan | undefined {
  const lanes = lanesOf(dtype);
  const [widthVectors, valueVectors] = [Math.ceil(width / lanes), Math.ceil(valueWidth / lanes)];
  const [columnTiles, rowTiles] = [Math.ceil(columns / targetTile), Math.ceil(rows / targetTile)];
  const [columnVectors, rowVectors] = [columnTiles, rowTiles].map(
    (tiles) => (tiles * targetTile) / lanes,
  ) as [number, number];
  const vectors =
    direction === "forward"
      ? rows * widthVectors + columns * (widthVectors + valueVectors + rowVectors)
      : (rows + columns) * (widthVectors + valueVectors) + 2 * rows * columnVectors + columns * rowVectors;
  if (vectors * vectorBytes > sharedBytes) return undefined;

  const [tileRows, tileColumns] = [tileOf(rows), tileOf(columns)];
  const dotVectors = direction === "forward" ? widthVectors : valueVectors;
  const split = Math.min(powerUpTo(dotVectors), 8);
  const dots = Math.ceil(rows / tileRows) * Math.ceil(columns / tileColumns) * split;
  const sums = direction === "forward" ? rowTiles * valueVectors : (rowTiles + columnTiles) * widthVectors;
  const most = Math.max(dots, sums, vectors / mostVectors);
  const threads = Math.min(Math.ceil(most / warp) * warp, mostThreads);
  const rowLanes = Math.min(powerDownTo(Math.max(Math.floor(threads / rows), 1)), warp, powerUpTo(columns));
  return {
    ...{ rows, columns, width, valueWidth, threads },
    ...{ widthVectors, valueVectors, columnVectors, rowVectors },
    ...{ tileRows, tileColumns, split, rowLanes },
  };
}

/** How many of so many rows make a tile: a power of two up to 4. */
function tileOf(count: number): number {
  return Math.min(powerUpTo(count), 4);
}

function powerUpTo(count: number): number {
  return 2 ** Math.ceil(Math.log2(count));
}

function powerDownTo(count: number): number {
  return 2 ** Math.floor(Math.log2(count));
}
