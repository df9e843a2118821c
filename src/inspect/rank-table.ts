/** Compares the ranks of a distributed run: what a step takes on each, how long it waits for the others, and what it sends. */

import type { PlanRecord, RankSteps } from "../records/index.js";
import { type RankReading, sumSpans } from "../train/index.js";
import type { RankLine, RankPoint, RankTable } from "./page/wire.js";

/** A rank is slow if its own work takes longer than that of the median of the other ranks, by this part of a step. */
const slowShare = 0.1;
/** Points of all ranks together, in an answer. */
const maxPoints = 20_000;

export function rankTable(ranks: readonly RankReading[], plans: readonly PlanRecord[]): RankTable {
  const planned = ranks.length > 0 ? largestExchange(plans, ranks.length) : undefined;
  const perRank = Math.max(10, Math.floor(maxPoints / Math.max(1, ranks.length)));
  const lines = ranks.map((reading) => lineOf(reading, planned, perRank));
  return { ranks: lines.map((line) => ({ ...line, isSlow: isSlow(line, lines) })) };
}

function lineOf(
  { spans, ...rank }: RankReading,
  planned: { readonly collectives: number; readonly sentBytes: number } | undefined,
  perRank: number,
): RankLine {
  const reduced = reduce(spans, perRank);
  const points = reduced.map(pointOf);
  const typical = (of: (point: RankPoint) => number | null): number | null =>
    median(
      points.map(of),
      reduced.map(({ steps }) => steps),
    );
  const whole = sumSpans(spans);
  const perStep = (value: number | undefined): number | null =>
    value === undefined || whole.steps === 0 ? null : value / whole.steps;
  return {
    ...{ ...rank, steps: whole.step, points, isSlow: false },
    stepMs: typical(({ stepMs }) => stepMs),
    ownMs: typical(({ ownMs }) => ownMs),
    sentBytes: perStep(whole.traffic?.sentBytes) ?? planned?.sentBytes ?? null,
    collectives: perStep(whole.traffic?.collectives) ?? planned?.collectives ?? null,
  };
}

function pointOf({ step, time, steps, ms, traffic }: RankSteps): RankPoint {
  return {
    ...{ step, time, stepMs: ms / steps },
    ownMs: traffic ? Math.max(0, ms - traffic.ms) / steps : null,
  };
}

/** At most `count` spans. */
function reduce(spans: readonly RankSteps[], count: number): readonly RankSteps[] {
  const perPoint = Math.ceil(spans.length / count);
  if (perPoint <= 1) return spans;
  return Array.from({ length: Math.ceil(spans.length / perPoint) }, (_, point) =>
    sumSpans(spans.slice(point * perPoint, (point + 1) * perPoint)),
  );
}

function isSlow({ rank, stepMs, ownMs }: RankLine, all: readonly RankLine[]): boolean {
  const others = median(all.filter((other) => other.rank !== rank).map((other) => other.ownMs));
  return stepMs !== null && ownMs !== null && others !== null && ownMs - others > slowShare * stepMs;
}

/** The lower one of two. A value may count several times. A median, because tests and checkpoints are between some steps. */
function median(values: readonly (number | null)[], counts: readonly number[] = []): number | null {
  const known = values
    .flatMap((value, index) => (value === null ? [] : [{ value, count: counts[index] ?? 1 }]))
    .sort((a, b) => a.value - b.value);
  const total = known.reduce((sum, { count }) => sum + count, 0);
  let before = 0;
  for (const { value, count } of known) {
    before += count;
    if (2 * before >= total) return value;
  }
  return null;
}

/** The collectives of the plan that exchanges most: those of a step, where the host does not see them. */
function largestExchange(
  plans: readonly PlanRecord[],
  size: number,
): { readonly collectives: number; readonly sentBytes: number } | undefined {
  const [largest] = plans.map((plan) => exchangeOf(plan, size)).sort((a, b) => b.sentBytes - a.sentBytes);
  return largest?.collectives ? largest : undefined;
}

/** The collectives of a plan, and the bytes that a rank sends to the others in them. */
export function exchangeOf(
  { calls }: Pick<PlanRecord, "calls">,
  size: number,
): { readonly collectives: number; readonly sentBytes: number } {
  const others = size - 1;
  const sent = calls.flatMap(({ op, readBytes }) => {
    if (op === "allGather") return [readBytes * others];
    return op === "allToAll" || op === "reduceScatter" ? [(readBytes / size) * others] : [];
  });
  return { collectives: sent.length, sentBytes: sent.reduce((sum, bytes) => sum + bytes, 0) };
}
