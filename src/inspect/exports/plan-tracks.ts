/**
 * A plan's kernels on a trace, once, where a step of the run was sent. They are no recording of that step: each call lasts as
 * long as it was measured to add to the step, one behind the other, on the track of its stream.
 */

import type { PlanRecord } from "../../records/index.js";
import type { StepBucket } from "./step-buckets.js";
import type { TraceSpan, TraceWriter } from "./trace-events.js";

type Call = PlanRecord["calls"][number];

interface TimedCall {
  readonly index: number;
  readonly call: Call;
  /** Since the replay's begin. */
  readonly beginMs: number;
  readonly lastsMs: number;
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
    notes.push(`Of the ${title} ${plan.calls.length - measured} calls have no measured time.`);
  const { atMs, step } = placeOf(plan, rows);
  const calls = timeCalls(plan.calls);
  const pid = writer.addProcess(
    title,
    "one replay with measured kernel times: what each call adds to the step",
  );
  const where = step === undefined ? "when it was made" : `at step ${step}`;
  const replay: TraceSpan = {
    name: `one replay, shown ${where}`,
    cat: "measured kernel times",
    ...{ beginMs: 0, lastsMs: endOf(calls) },
    args: { step, calls: calls.length, mode: plan.mode, reason: plan.reason },
    inner: partSpans(calls),
  };
  writer.addSpans(writer.addTrack(pid, "the step and its phases"), [replay], atMs);
  for (const stream of [...new Set(calls.map(({ call }) => call.stream))].sort((one, other) => one - other)) {
    const track = writer.addTrack(pid, stream === 0 ? "kernels, main stream" : `kernels, stream ${stream}`);
    const own = calls.filter(({ call }) => call.stream === stream).map(callSpan);
    writer.addSpans(track, own, atMs);
  }
}

/** Behind the step before which the plan was noted, where that one is shown by itself; else the last step, or the plan's own time. */
function placeOf(
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
    const timed = { index, call, beginMs: spentUs / 1000, lastsMs: us / 1000 };
    spentUs += us;
    return [timed];
  });
}

function endOf(calls: readonly TimedCall[]): number {
  const last = calls.at(-1);
  return last ? last.beginMs + last.lastsMs : 0;
}

/** Forward, backward and update: calls of one phase that follow each other. */
function partSpans(calls: readonly TimedCall[]): TraceSpan[] {
  const runs: TimedCall[][] = [];
  for (const timed of calls) {
    const last = runs.at(-1);
    if (last?.[0]?.call.phase === timed.call.phase) last.push(timed);
    else runs.push([timed]);
  }
  return runs.flatMap((run) => {
    const [first] = run;
    if (!first) return [];
    const { beginMs, call } = first;
    return [{ name: call.phase, cat: "phase", beginMs, lastsMs: endOf(run) - beginMs }];
  });
}

function callSpan({ index, call, beginMs, lastsMs }: TimedCall): TraceSpan {
  const { op, kernel, kind, shape, phase, readBytes, writtenBytes, us } = call;
  return {
    ...{ name: op, cat: kind === "copy" ? "copy" : "kernel", beginMs, lastsMs },
    args: { call: index, kernel, kind, shape, phase, readBytes, writtenBytes, us },
  };
}
