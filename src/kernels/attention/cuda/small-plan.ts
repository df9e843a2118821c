/**
 * The form for short sequences: a block is one pair of batch and head. Its keys and values are in shared memory, and a few
 * lanes, a team, own some of its rows. Forward they own them from the scores to the result, so that all that they pass on
 * stays in their warp. The way back has more work, and three groups of warps share it. The sizes are printed into the code
 * as constants. This file decides whether a problem is small enough, and how its threads share the work.
 */

import type { GemmDtype } from "../../gemm/cpu/element.js";
import type { AttentionShape } from "../problem.js";
import { lanesOf } from "./element.js";

/** What every device gives a block without being asked twice. */
const sharedBytes = 48 * 1024;
const vectorBytes = 16;
const warp = 32;
/** Where a block has so many threads, they have registers enough. */
const maxThreads = 384;
/** How many vectors a thread holds at most on their way to shared memory: few enough for its registers. */
const maxVectors = 24;
/** A lane multiplies so many rows at most, each of so many vectors, by what it reads. */
const maxRows = 4;
const maxSteps = 4;
/** A lane has so many of its rows' scores at most. */
const maxScores = 32;

export type Direction = "forward" | "backward";

/** Counts that are printed under their names. */
export interface SmallPlan {
  readonly heads: number;
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
  /** A team's lanes share its rows: each has every so many-th vector of them. */
  readonly teamLanes: number;
  /**
   * The block's warps are so many groups, of so many threads each. Every group's teams own all rows: groups share the columns
   * on the way to the scores, and on the way back each then sums one of the three gradients.
   */
  readonly groups: number;
  readonly groupThreads: number;
  /** A team of a group owns so many rows of scores, and so many rows of a result. */
  readonly teamRows: number;
  readonly teamTargets: number;
  /** How many results all teams of a group would own, be they there or not. */
  readonly heldTargets: number;
  /** A team owns so many rows of scores where all groups share them. */
  readonly scoreRows: number;
  /** The scores of so many columns are summed together: a power of two. */
  readonly columnsAtOnce: number;
}

/** Undefined where a pair takes more shared memory or threads than a block has, or more registers than a lane. */
export function planSmall(
  direction: Direction,
  dtype: GemmDtype,
  { heads, rows, columns, width, valueWidth }: AttentionShape,
): SmallPlan | undefined {
  const lanes = lanesOf(dtype);
  const [widthVectors, valueVectors, columnVectors, rowVectors] = [width, valueWidth, columns, rows].map(
    (length) => Math.ceil(length / lanes),
  ) as [number, number, number, number];
  const longest = Math.max(widthVectors, valueVectors);
  const teamLanes = Math.min(Math.max(powerUpTo(Math.max(longest, columnVectors)), 2), 8);
  const teamsInWarp = warp / teamLanes;

  const isForward = direction === "forward";
  const groups = isForward ? 1 : 3;
  const owned = isForward ? rows : Math.max(rows, columns);
  const moved = (isForward ? columns : rows + columns) * (widthVectors + valueVectors);
  const groupWarps = Math.max(
    Math.ceil(owned / maxRows / teamsInWarp),
    Math.ceil(moved / maxVectors / warp / groups),
  );
  const [teams, threads] = [groupWarps * teamsInWarp, groups * groupWarps * warp];
  const [teamRows, teamTargets] = [Math.ceil(rows / teams), Math.ceil(owned / teams)];
  const heldTargets = teams * teamTargets;
  const vectors = moved + heldTargets * (columnVectors + (isForward ? 0 : 2 * rowVectors));
  if (threads > maxThreads || vectors * vectorBytes > sharedBytes) return undefined;
  const scoreRows = Math.ceil(rows / teams / groups);
  const scores = scoreRows * Math.ceil(columns / teamLanes);
  if (longest > maxSteps * teamLanes || scores > maxScores) return undefined;
  return {
    ...{ heads, rows, columns, width, valueWidth, threads },
    ...{ widthVectors, valueVectors, columnVectors, rowVectors },
    ...{ teamLanes, groups, groupThreads: threads / groups },
    ...{ teamRows, teamTargets, heldTargets, scoreRows },
    columnsAtOnce: Math.min(powerUpTo(columns), 4),
  };
}

function powerUpTo(count: number): number {
  return 2 ** Math.ceil(Math.log2(count));
}
