/**
 * The config of attention over short sequences: one block per (batch, head). Keys and values are in shared memory; a team of a few lanes
 * owns some rows. In the forward pass a team owns its rows from the scores to the result, so that nothing leaves its warp. In the backward
 * pass three groups of warps share the work. Sizes are compile-time constants. This file decides whether a problem is small enough.
 *
 * All limits follow from the static shared memory and the registers of a block, which are the same on every supported device.
 */

import { maxVectorBytes, staticSharedBytes, warpSize } from "../../cost-model.js";
import type { GemmDtype } from "../../gemm/cpu/element.js";
import type { AttentionShape } from "../problem.js";
import { lanesOf } from "./element.js";

/** Threads of a block: leaves 170 registers for each, which the limits below share. */
const maxThreads = 384;
/** Vectors that a thread has in flight to shared memory: 96 registers. */
const maxVectors = 24;
/** Rows of a team, and vectors of each that a lane multiplies: 64 registers. */
const maxRows = 4;
const maxSteps = 4;
/** Scores of a lane: 32 registers (in f32). */
const maxScores = 32;

export type Direction = "forward" | "backward";

/** Constants of the generated code, under their names. */
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
  /** Lanes of a team: each has every n-th vector of the team's rows. */
  readonly teamLanes: number;
  /**
   * Groups of warps, and threads of each. The teams of each group cover all rows. The groups share the columns of the scores; in the
   * backward pass each then computes one of dQ, dK, dV.
   */
  readonly groups: number;
  readonly groupThreads: number;
  /** Rows of scores and rows of a result that a team of a group owns. */
  readonly teamRows: number;
  readonly teamTargets: number;
  /** Rows of a result over all teams of a group, including padding. */
  readonly paddedTargets: number;
  /** Rows of scores that a team owns when all groups share them. */
  readonly scoreRows: number;
  /** Columns whose scores are accumulated together: a power of two. */
  readonly columnsPerRound: number;
}

/** Undefined if a (batch, head) exceeds the shared memory or threads of a block, or the registers of a lane. */
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
  const teamLanes = Math.min(Math.max(nextPowerOfTwo(Math.max(longest, columnVectors)), 2), 8);
  const teamsInWarp = warpSize / teamLanes;

  const isForward = direction === "forward";
  const groups = isForward ? 1 : 3;
  const ownedRows = isForward ? rows : Math.max(rows, columns);
  const stagedVectors = (isForward ? columns : rows + columns) * (widthVectors + valueVectors);
  const groupWarps = Math.max(
    Math.ceil(ownedRows / maxRows / teamsInWarp),
    Math.ceil(stagedVectors / maxVectors / warpSize / groups),
  );
  const [teams, threads] = [groupWarps * teamsInWarp, groups * groupWarps * warpSize];
  const [teamRows, teamTargets] = [Math.ceil(rows / teams), Math.ceil(ownedRows / teams)];
  const paddedTargets = teams * teamTargets;
  const vectors = stagedVectors + paddedTargets * (columnVectors + (isForward ? 0 : 2 * rowVectors));
  if (threads > maxThreads || vectors * maxVectorBytes > staticSharedBytes) return undefined;
  const scoreRows = Math.ceil(rows / teams / groups);
  const scores = scoreRows * Math.ceil(columns / teamLanes);
  if (longest > maxSteps * teamLanes || scores > maxScores) return undefined;
  return {
    ...{ heads, rows, columns, width, valueWidth, threads },
    ...{ widthVectors, valueVectors, columnVectors, rowVectors },
    ...{ teamLanes, groups, groupThreads: threads / groups },
    ...{ teamRows, teamTargets, paddedTargets, scoreRows },
    columnsPerRound: Math.min(nextPowerOfTwo(columns), 4),
  };
}

function nextPowerOfTwo(count: number): number {
  return 2 ** Math.ceil(Math.log2(count));
}
