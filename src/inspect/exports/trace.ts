/**
 * A run as a trace for Perfetto and Chrome: the steps as the host sent them, phases, copies, incidents, curves of loss, rate and
 * memory; and once per plan, its kernels with their measured times. Of a long run, the last steps are shown individually and the
 * earlier ones in groups; the file says how many. A distributed run has a process for each rank, on the clock of rank 0.
 */

import { existsSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import type { IncidentRecord, MemorySample, PlanRecord, RankSteps } from "../../records/index.js";
import { countSteps, inspectionFiles, readInspection, readRanks, readRun } from "../../train/index.js";
import { addPlan } from "./plan-tracks.js";
import { addRankSteps, rankTitle, recentSpans } from "./rank-tracks.js";
import { type RecorderReading, readRecorder } from "./recorder-lines.js";
import { bucketSteps, type StepBucket } from "./step-buckets.js";
import { type TraceEvent, type TraceSpan, TraceWriter } from "./trace-events.js";

/** The limits of a trace. */
export interface TraceLimits {
  /** Steps that are shown individually, the last ones; default: 2,000. */
  readonly steps?: number;
  /** Points for all earlier steps; default: 2,000. */
  readonly buckets?: number;
  /** Plans, the last ones; default: 16. */
  readonly plans?: number;
  /**
   * Lines of the recorder's log, memory samples and incidents, the last ones of each; default: 20,000. The other ranks than 0 share as many
   * lines of their logs.
   */
  readonly lines?: number;
}

/** The file's content: the format's "JSON object". */
export interface TraceFile {
  readonly traceEvents: readonly TraceEvent[];
  readonly displayTimeUnit: "ms";
  readonly otherData: Readonly<Record<string, string>>;
}

/** Makes the trace of a run's folder. Unreadable data is omitted and listed in `otherData.notes`. */
export function traceRun(runPath: string, limits: TraceLimits = {}): TraceFile {
  const { steps = 2000, buckets = 2000, plans: maxPlans = 16, lines = 20_000 } = limits;
  const name = basename(resolve(runPath));
  const run = readRun(runPath);
  const { plans, memory, incidents, messages } = readInspection(runPath);
  const notes = [...run.messages, ...messages];
  const rows = readRows(runPath, steps, buckets, notes);
  const recorder = readRecorder(runPath, lines);
  if (recorder.omitted > 0) notes.push(`${recorder.omitted} older lines of the recorder's log are omitted.`);
  const keptPlans = lastOf(plans, maxPlans, "plans", notes);
  const keptMemory = lastOf(memory, lines, "memory samples", notes);
  const keptIncidents = lastOf(incidents, lines, "incidents", notes);
  const { ranks, messages: unread } = readRanks(runPath);
  notes.push(...unread);
  const perRank = Math.max(200, Math.floor(lines / Math.max(1, ranks.length - 1)));
  const others = ranks
    .filter(({ rank }) => rank > 0)
    .map((rank) => ({ rank, recorder: readRecorder(runPath, perRank, rank.rank) }));
  const omitted = others.reduce((sum, other) => sum + other.recorder.omitted, 0);
  if (omitted > 0) notes.push(`${omitted} older lines of the logs of other ranks are omitted.`);
  const spansOf = new Map(ranks.map((rank) => [rank.rank, recentSpans(rank, perRank, notes)]));
  const recorders = [recorder, ...others.map((other) => other.recorder)];
  const rankSpans = [...spansOf.values()].flat();
  const originMs = earliest(rows, keptPlans, keptMemory, keptIncidents, recorders, rankSpans);

  const writer = new TraceWriter(originMs);
  const [first] = ranks;
  const title = `run ${name}`;
  const pid = writer.addProcess(first ? rankTitle(title, first) : title, run.run?.device ?? "");
  writer.addSpans(writer.addTrack(pid, "steps, as the host sends them"), stepSpans(rows));
  addPhases(writer, pid, recorder);
  addIncidents(writer, pid, keptIncidents);
  addCurves(writer, pid, rows);
  addMemory(writer, pid, keptMemory);
  addRankSteps(writer, pid, spansOf.get(0) ?? []);
  for (const { rank, recorder: events } of others) {
    const other = writer.addProcess(rankTitle(title, rank), rank.device);
    addPhases(writer, other, events);
    addRankSteps(writer, other, spansOf.get(rank.rank) ?? []);
  }
  for (const plan of keptPlans) addPlan(writer, plan, rows, notes);
  return {
    traceEvents: writer.events,
    displayTimeUnit: "ms",
    otherData: {
      ...{ writtenBy: "Holdfast", run: name, device: run.run?.device ?? "unknown" },
      // The trace's time 0.
      beginsAt: Math.abs(originMs) <= lastMomentMs ? new Date(originMs).toISOString() : "unknown",
      notes: notes.join("\n"),
    },
  };
}

/** The maximum of a Date; a damaged log may have larger times. */
const lastMomentMs = 8.64e15;

/** Oldest first: earlier rows in groups, then the last rows individually. */
function readRows(runPath: string, steps: number, buckets: number, notes: string[]): readonly StepBucket[] {
  const path = join(runPath, inspectionFiles.steps);
  if (!existsSync(path)) {
    notes.push("The run has no step log: there are no steps to show.");
    return [];
  }
  try {
    const count = countSteps(path);
    const from = Math.max(0, count - steps);
    const before = from > 0 ? bucketSteps(path, { from: 0, to: from, maxBuckets: buckets }) : [];
    if (from > 0) {
      notes.push(
        `The last ${count - from} of ${count} steps are shown individually; the ${from} earlier ones are ${before.length} points of ${before[0]?.rows ?? 0} steps.`,
      );
    }
    return [...before, ...bucketSteps(path, { from, to: count, maxBuckets: count - from })];
  } catch (error) {
    notes.push(error instanceof Error ? error.message : String(error));
    return [];
  }
}

function lastOf<Item>(
  items: readonly Item[],
  maxItems: number,
  kind: string,
  notes: string[],
): readonly Item[] {
  if (items.length <= maxItems) return items;
  notes.push(`The last ${maxItems} of ${items.length} ${kind} are shown.`);
  return items.slice(-maxItems);
}

function earliest(
  rows: readonly StepBucket[],
  plans: readonly PlanRecord[],
  memory: readonly MemorySample[],
  incidents: readonly IncidentRecord[],
  recorders: readonly RecorderReading[],
  rankSpans: readonly RankSteps[],
): number {
  let first = Infinity;
  const consider = (ms: number): void => {
    if (Number.isFinite(ms)) first = Math.min(first, ms);
  };
  for (const { time } of rows) consider(time);
  for (const { at } of plans) consider(Date.parse(at));
  for (const { time } of [...memory, ...incidents]) consider(time);
  for (const { phases, instants } of recorders) {
    for (const { startMs } of phases) consider(startMs);
    for (const { atMs } of instants) consider(atMs);
  }
  for (const { time, ms } of rankSpans) consider(time - ms);
  return Number.isFinite(first) ? first : 0;
}

/** A step's duration is its host time; a group lasts from its first to its last step. */
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
    // The log's clock may have a resolution of milliseconds: steps of one millisecond are placed one after the other.
    const durationMs = isOne ? hostMs : endTime - time;
    return {
      name: isOne ? `step ${firstStep}` : `steps ${firstStep} to ${lastStep}`,
      cat: isOne ? "host" : "step group",
      ...{ startMs: time, durationMs },
      args: {
        ...{ fold, epoch, lr, samples, loss: loss?.mean },
        ...(isOne
          ? { hostMs }
          : { steps: count, meanHostMs: hostMs / count, lossMin: loss?.min, lossMax: loss?.max }),
        ...(bucket.notFinite > 0 && { lossesUnknownOrNotFinite: bucket.notFinite }),
      },
    };
  });
}

function addPhases(writer: TraceWriter, pid: number, { phases, instants }: RecorderReading): void {
  if (phases.length > 0) writer.addSpans(writer.addTrack(pid, "phases and copies"), phases);
  if (instants.length === 0) return;
  const track = writer.addTrack(pid, "budget and captures");
  for (const instant of sortedByTime(instants, ({ atMs }) => atMs)) writer.addInstant(track, instant);
}

function addIncidents(writer: TraceWriter, pid: number, incidents: readonly IncidentRecord[]): void {
  if (incidents.length === 0) return;
  const track = writer.addTrack(pid, "incidents");
  for (const { kind, time, step, message, details, phases } of sortedByTime(incidents, ({ time }) => time)) {
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
  for (const { time, used, limit, holders, arena } of sortedByTime(memory, ({ time }) => time)) {
    // A removed holder is written as 0, because a curve would keep its last value.
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

function sortedByTime<Item>(items: readonly Item[], timeOf: (item: Item) => number): readonly Item[] {
  return [...items].sort((a, b) => timeOf(a) - timeOf(b));
}
