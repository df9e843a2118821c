/**
 * A run as a trace that Perfetto and Chrome open: the steps as the host sent them, phases, copies, incidents, curves of loss, rate
 * and memory; and, once for each plan, its kernels with the times that were measured for them. A long run is shown by its
 * last steps, and the steps before them taken together: the file says how many.
 */

import { existsSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import type { IncidentRecord, MemorySample, PlanRecord } from "../../records/index.js";
import { countSteps, inspectionFiles, readInspection, readRun } from "../../train/index.js";
import { addPlan } from "./plan-tracks.js";
import { type RecorderReading, readRecorder } from "./recorder-lines.js";
import { bucketSteps, type StepBucket } from "./step-buckets.js";
import { type TraceEvent, type TraceSpan, TraceWriter } from "./trace-events.js";

/** How much of a run a trace shows. */
export interface TraceLimits {
  /** The last steps, each by itself; 2,000 unless given. */
  readonly steps?: number;
  /** Points for all steps before them; 2,000 unless given. */
  readonly buckets?: number;
  /** The last plans; 16 unless given. */
  readonly plans?: number;
  /** The last lines of the recorder's log, memory samples and records of incidents; 20,000 unless given. */
  readonly lines?: number;
}

/** The file's content: the format's "JSON object". */
export interface TraceFile {
  readonly traceEvents: readonly TraceEvent[];
  readonly displayTimeUnit: "ms";
  readonly otherData: Readonly<Record<string, string>>;
}

/** Makes the trace of a run's folder; what can't be read is left out, and told in `otherData.notes`. */
export function traceRun(runPath: string, limits: TraceLimits = {}): TraceFile {
  const { steps = 2000, buckets = 2000, plans: maxPlans = 16, lines = 20_000 } = limits;
  const name = basename(resolve(runPath));
  const run = readRun(runPath);
  const { plans, memory, incidents, messages } = readInspection(runPath);
  const notes = [...run.messages, ...messages];
  const rows = readRows(runPath, steps, buckets, notes);
  const recorder = readRecorder(runPath, lines);
  if (recorder.leftOut > 0) notes.push(`${recorder.leftOut} older lines of the recorder's log are left out.`);
  const keptPlans = lastOf(plans, maxPlans, "plans", notes);
  const keptMemory = lastOf(memory, lines, "memory samples", notes);
  const keptIncidents = lastOf(incidents, lines, "records of incidents", notes);
  const originMs = earliest(rows, keptPlans, keptMemory, keptIncidents, recorder);

  const writer = new TraceWriter(originMs);
  const pid = writer.addProcess(`run ${name}`, run.run?.device ?? "");
  writer.addSpans(writer.addTrack(pid, "steps, as the host sends them"), stepSpans(rows));
  addPhases(writer, pid, recorder);
  addIncidents(writer, pid, keptIncidents);
  addCurves(writer, pid, rows);
  addMemory(writer, pid, keptMemory);
  for (const plan of keptPlans) addPlan(writer, plan, rows, notes);
  return {
    traceEvents: writer.events,
    displayTimeUnit: "ms",
    otherData: {
      ...{ writtenBy: "Holdfast", run: name, device: run.run?.device ?? "not known" },
      // The trace's time 0.
      beginsAt: Math.abs(originMs) <= lastMomentMs ? new Date(originMs).toISOString() : "not known",
      notes: notes.join("\n"),
    },
  };
}

/** The last time that a Date can hold; a damaged log may have others. */
const lastMomentMs = 8.64e15;

/** Oldest first: rows before the last ones taken together, then the last ones each by itself. */
function readRows(runPath: string, steps: number, buckets: number, notes: string[]): readonly StepBucket[] {
  const path = join(runPath, inspectionFiles.steps);
  if (!existsSync(path)) {
    notes.push("The run has no step log: there are no steps to show.");
    return [];
  }
  try {
    const count = countSteps(path);
    const from = Math.max(0, count - steps);
    const before = from > 0 ? bucketSteps(path, { from: 0, to: from, most: buckets }) : [];
    if (from > 0) {
      notes.push(
        `Of ${count} steps the last ${count - from} are shown each; the ${from} before them are ${before.length} points of ${before[0]?.rows ?? 0} steps.`,
      );
    }
    return [...before, ...bucketSteps(path, { from, to: count, most: count - from })];
  } catch (error) {
    notes.push(error instanceof Error ? error.message : String(error));
    return [];
  }
}

function lastOf<Item>(items: readonly Item[], most: number, what: string, notes: string[]): readonly Item[] {
  if (items.length <= most) return items;
  notes.push(`Of ${items.length} ${what} the last ${most} are shown.`);
  return items.slice(-most);
}

function earliest(
  rows: readonly StepBucket[],
  plans: readonly PlanRecord[],
  memory: readonly MemorySample[],
  incidents: readonly IncidentRecord[],
  recorder: RecorderReading,
): number {
  let first = Infinity;
  const look = (ms: number): void => {
    if (Number.isFinite(ms)) first = Math.min(first, ms);
  };
  for (const { time } of rows) look(time);
  for (const { at } of plans) look(Date.parse(at));
  for (const { time } of [...memory, ...incidents]) look(time);
  for (const { beginMs } of recorder.phases) look(beginMs);
  for (const { atMs } of recorder.moments) look(atMs);
  return Number.isFinite(first) ? first : 0;
}

/** A step lasts as long as the host was busy with it; steps taken together, from the first to the last. */
function stepSpans(rows: readonly StepBucket[]): TraceSpan[] {
  return rows.map((bucket) => {
    const {
      rows: count,
      firstStep,
      lastStep,
      time,
      endTime,
      loss,
      lr,
      fold,
      epoch,
      samples,
      hostMs,
    } = bucket;
    const isOne = count === 1;
    // The log's clock may tell whole milliseconds: steps of one stand one behind the other.
    const lastsMs = isOne ? hostMs : endTime - time;
    return {
      name: isOne ? `step ${firstStep}` : `steps ${firstStep} to ${lastStep}`,
      cat: isOne ? "host" : "steps together",
      ...{ beginMs: time, lastsMs },
      args: {
        ...{ fold, epoch, lr, samples, loss: loss?.mean },
        ...(isOne
          ? { hostMs }
          : { steps: count, meanHostMs: hostMs / count, lossMin: loss?.min, lossMax: loss?.max }),
        ...(bucket.notFinite > 0 && { lossesNotKnownOrNotFinite: bucket.notFinite }),
      },
    };
  });
}

function addPhases(writer: TraceWriter, pid: number, { phases, moments }: RecorderReading): void {
  if (phases.length > 0) writer.addSpans(writer.addTrack(pid, "phases and copies"), phases);
  if (moments.length === 0) return;
  const track = writer.addTrack(pid, "budget and captures");
  for (const moment of inOrder(moments, ({ atMs }) => atMs)) writer.addInstant(track, moment);
}

function addIncidents(writer: TraceWriter, pid: number, incidents: readonly IncidentRecord[]): void {
  if (incidents.length === 0) return;
  const track = writer.addTrack(pid, "incidents");
  for (const { kind, time, step, message, details, phases } of inOrder(incidents, ({ time }) => time)) {
    const args = { message, step, details, phases: phases.join("\n") };
    writer.addInstant(track, { name: kind, cat: "incidents", atMs: time, args });
  }
}

function addCurves(writer: TraceWriter, pid: number, rows: readonly StepBucket[]): void {
  let lastMs = Number.NEGATIVE_INFINITY;
  for (const { time, loss, lr, samplesPerSecond } of rows) {
    // The clock may have been set back.
    if (time > lastMs) lastMs = time;
    writer.addCounter(pid, "loss", lastMs, { value: loss?.mean });
    writer.addCounter(pid, "learning rate", lastMs, { value: lr });
    writer.addCounter(pid, "samples/s", lastMs, { value: samplesPerSecond });
  }
}

function addMemory(writer: TraceWriter, pid: number, memory: readonly MemorySample[]): void {
  const labels = [...new Set(memory.flatMap(({ holders }) => holders.map(({ label }) => label)))];
  for (const { time, used, limit, holders, arena } of inOrder(memory, ({ time }) => time)) {
    // A holder that is gone is told as 0: a curve keeps its last value otherwise.
    const byHolder = new Map(holders.map(({ label, bytes }) => [label, bytes]));
    writer.addCounter(pid, "memory, bytes", time, { used, limit });
    writer.addCounter(
      pid,
      "memory by holder, bytes",
      time,
      Object.fromEntries(labels.map((label) => [label, byHolder.get(label) ?? 0])),
    );
    const { committed, highWater, live, pinnedBytes } = arena;
    writer.addCounter(pid, "arena, bytes", time, { committed, highWater, live, pinned: pinnedBytes });
  }
}

function inOrder<Item>(items: readonly Item[], timeOf: (item: Item) => number): readonly Item[] {
  return [...items].sort((one, other) => timeOf(one) - timeOf(other));
}
