/**
 * A plan's kernels on a trace, shown once at a step of the run. They are not a recording of that step: each call has its measured
 * contribution to the step, one after the other, on the track of its stream.
 */

import type { PlanRecord } from "../../records/index.js";
import type { StepBucket } from "./step-buckets.js";
import type { TraceSpan, TraceWriter } from "./trace-events.js";

type Call = PlanRecord["calls"][number];

interface TimedCall {
  readonly index: number;
  readonly call: Call;
  /** Since the start of the replay. */
  readonly startMs: number;
  readonly durationMs: number;
}

export function addPlan(
  writer: TraceWriter,
  plan: PlanRecord,
  rows: readonly StepBucket[],
  notes: string[],
): void {
  const title = `plan ${plan.name} (${plan.inputs})`;
  const measured = plan.calls.filter(({ us }) => us !== undefined).length;
  if (measured === 0) {
    notes.push(`The ${title} has no measured times: its ${plan.calls.length} calls are not shown.`);
    return;
  }
  if (measured < plan.calls.length)
    notes.push(`${plan.calls.length - measured} calls of the ${title} have no measured time.`);
  const { atMs, step } = positionOf(plan, rows);
  const calls = timeCalls(plan.calls);
  const pid = writer.addProcess(
    title,
    "one replay with measured kernel times: the contribution of each call to the step",
  );
  const where = step === undefined ? "when it was compiled" : `at step ${step}`;
  const replay: TraceSpan = {
    name: `one replay, shown ${where}`,
    cat: "measured kernel times",
    ...{ startMs: 0, durationMs: endOf(calls) },
    args: { step, calls: calls.length, mode: plan.mode, reason: plan.reason },
    inner: phaseSpans(calls),
  };
  writer.addSpans(writer.addTrack(pid, "the step and its phases"), [replay], atMs);
  for (const stream of [...new Set(calls.map(({ call }) => call.stream))].sort((a, b) => a - b)) {
    const track = writer.addTrack(pid, stream === 0 ? "kernels, main stream" : `kernels, stream ${stream}`);
    const spans = calls.filter(({ call }) => call.stream === stream).map(callSpan);
    writer.addSpans(track, spans, atMs);
  }
}

/** The time of the replay: at the first single step after the plan's record; else at the last step, or at the plan's time. */
function positionOf(
  { at, step }: PlanRecord,
  rows: readonly StepBucket[],
): { readonly atMs: number; readonly step?: number } {
  const row = rows.find(({ rows: count, firstStep }) => count === 1 && firstStep > step) ?? rows.at(-1);
  if (row) return { atMs: row.time, step: row.firstStep };
  const atMs = Date.parse(at);
  return { atMs: Number.isNaN(atMs) ? 0 : atMs };
}

function timeCalls(calls: readonly Call[]): TimedCall[] {
  let spentUs = 0;
  return calls.flatMap((call, index) => {
    if (call.us === undefined) return [];
    const us = Math.max(0, call.us);
    const timed = { index, call, startMs: spentUs / 1000, durationMs: us / 1000 };
    spentUs += us;
    return [timed];
  });
}

function endOf(calls: readonly TimedCall[]): number {
  const last = calls.at(-1);
  return last ? last.startMs + last.durationMs : 0;
}

/** Forward, backward and update: consecutive calls of one phase. */
function phaseSpans(calls: readonly TimedCall[]): TraceSpan[] {
  const groups: TimedCall[][] = [];
  for (const timed of calls) {
    const last = groups.at(-1);
    if (last?.[0]?.call.phase === timed.call.phase) last.push(timed);
    else groups.push([timed]);
  }
  return groups.flatMap((group) => {
    const [first] = group;
    if (!first) return [];
    const { startMs, call } = first;
    return [{ name: call.phase, cat: "phase", startMs, durationMs: endOf(group) - startMs }];
  });
}

function callSpan({ index, call, startMs, durationMs }: TimedCall): TraceSpan {
  const { op, kernel, kind, shape, phase, readBytes, writtenBytes, us } = call;
  return {
    ...{ name: op, cat: kind === "copy" ? "copy" : "kernel", startMs, durationMs },
    args: { call: index, kernel, kind, shape, phase, readBytes, writtenBytes, us },
  };
}
