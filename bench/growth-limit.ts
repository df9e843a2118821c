/** Whether a figure of planning, such as the time of a stage, grows faster than n log n in the number n of calls. */

export interface GrowthPoint {
  /** Calls of the trace. */
  readonly calls: number;
  readonly amount: number;
}

/** Equal work in two processes differs by less than this factor. */
export const growthNoise = 1.5;

/**
 * Judges the last point of a series by the one before it: each point has several times the calls of the one before, or as many. Below
 * `floor`, an amount is mostly just-in-time compilation and garbage collection. Among points with as many calls the largest amount counts,
 * because a pass may find work at some sizes only.
 */
export function growsTooFast(points: readonly GrowthPoint[], floor: number): boolean {
  const [last, before] = [points.at(-1), points.at(-2)];
  if (!last || !before) return false;
  const similar = points.slice(0, -1).filter(({ calls }) => calls >= 0.8 * before.calls);
  const amount = Math.max(floor, ...similar.map((point) => point.amount));
  return last.amount > growthNoise * amount * (workOf(last) / workOf(before));
}

function workOf({ calls }: GrowthPoint): number {
  return calls * Math.log(calls);
}
