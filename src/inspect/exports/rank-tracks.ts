/** The steps of a rank on a trace, a slice for some in a row, with the part that it spent in collectives. */

import type { RankRecord, RankSteps } from "../../records/index.js";
import type { RankReading } from "../../train/index.js";
import type { TraceSpan, TraceWriter } from "./trace-events.js";

/** The name of a rank's process. */
export function rankTitle(run: string, { rank, host, pid }: RankRecord): string {
  return `${run}, rank ${rank} (process ${pid} on ${host})`;
}

/** The last spans of a rank. */
export function recentSpans(
  { rank, spans }: RankReading,
  maxSpans: number,
  notes: string[],
): readonly RankSteps[] {
  if (spans.length > maxSpans)
    notes.push(`The last ${maxSpans} of ${spans.length} groups of steps of rank ${rank} are shown.`);
  return spans.slice(-maxSpans);
}

export function addRankSteps(writer: TraceWriter, pid: number, spans: readonly RankSteps[]): void {
  if (spans.length === 0) return;
  writer.addSpans(writer.addTrack(pid, "steps and collectives"), spans.map(stepsSpan));
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const { time, steps, traffic } of spans) {
    // The clock may have been set back.
    lastMs = Math.max(lastMs, time);
    writer.addCounter(pid, "in collectives, ms per step", lastMs, {
      value: traffic && traffic.ms / Math.max(1, steps),
    });
  }
}

function stepsSpan({ time, step, steps, ms, traffic }: RankSteps): TraceSpan {
  const inCollectives: TraceSpan[] = traffic
    ? [
        {
          // The sum over the steps, drawn at the end.
          ...{ name: "in collectives, together", cat: "collectives" },
          ...{ startMs: time - Math.min(ms, traffic.ms), durationMs: Math.min(ms, traffic.ms) },
          args: { ...traffic },
        },
      ]
    : [];
  return {
    name: steps === 1 ? `step ${step}` : `steps ${step - steps + 1} to ${step}`,
    ...{ cat: "step group", startMs: time - ms, durationMs: ms },
    args: { steps, msPerStep: ms / Math.max(1, steps) },
    inner: inCollectives,
  };
}
