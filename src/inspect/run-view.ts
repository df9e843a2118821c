/** One run as the inspector shows it: all that its folder tells, read again at each look, and only what has come since. */

import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { readTail } from "../files/index.js";
import type { MemorySample } from "../records/index.js";
import { healthOf, InspectionReader, type InspectionReading, readRun } from "../train/index.js";
import { MiB } from "../units/index.js";
import type { RunDetail, RunLine } from "./page/wire.js";
import { type ListedRun, listRuns, phaseFiles, type ShownFolder } from "./run-list.js";
import { StepTable } from "./step-table.js";

/** Newest first. */
export function listLines(shown: ShownFolder): RunLine[] {
  const newest = (line: RunLine): string => line.started ?? line.updated ?? "";
  return listRuns(shown)
    .map(lineOf)
    .sort((one, other) => compare(newest(other), newest(one)) || compare(one.name, other.name));
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

function lineOf({ name, path, rejection }: ListedRun): RunLine {
  const nothing = { step: null, of: null, device: null, started: null, updated: null, isLive: false };
  if (rejection !== undefined) return { name, state: "broken", ...nothing, note: rejection };
  const { run, status, messages } = readRun(path, { metrics: false });
  const note = messages[0] ?? null;
  const known = {
    ...{ device: textOf(run?.device), started: textOf(run?.started) },
    ...{ step: status?.step ?? null, of: status?.of ?? null, updated: status?.updated ?? null },
  };
  if (!status) return { name, state: "broken", ...nothing, ...known, note: note ?? "It has no status." };
  if (status.state !== "running") return { name, state: status.state, ...known, isLive: false, note };
  const { state, reason } = healthOf(path);
  if (state === "failed") return { name, state, ...known, isLive: false, note: reason };
  return { name, state: "running", ...known, isLive: true, note: state === "stalled" ? reason : note };
}

function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** At most so many samples of memory are told, and the last. */
const maxSamples = 2000;
/** At most so many phase lines are told. */
const maxPhases = 2000;

export class RunView {
  readonly name: string;
  readonly path: string;
  readonly steps: StepTable;
  readonly #inspection: InspectionReader;

  constructor({ name, path }: ListedRun) {
    this.name = name;
    this.path = path;
    this.steps = new StepTable(path);
    this.#inspection = new InspectionReader(path);
  }

  /** Reads what has come, and lets other clients be answered between two pieces. */
  async catchUp(): Promise<void> {
    while (this.#inspection.advance()) await setImmediate();
  }

  inspection(): InspectionReading {
    return this.#inspection.read();
  }

  detail(): RunDetail {
    const { run = null, status = null, results = null, metrics, messages } = readRun(this.path);
    const inspected = this.inspection();
    return {
      ...{ name: this.name, run, status, results, metrics, incidents: inspected.incidents },
      plans: inspected.plans.map(({ name, inputs, mode = null, calls, memory }, index) => ({
        ...{ index, name, inputs, mode, calls: calls.length, peak: memory.peak },
      })),
      messages: [...messages, ...inspected.messages, ...this.#stepMessages()],
    };
  }

  /** Where memory stood: of samples that lie close together the one with the most in use, and the last of all. */
  memory(): readonly MemorySample[] {
    const { memory } = this.inspection();
    const perBucket = Math.ceil(memory.length / maxSamples);
    if (perBucket <= 1) return memory;
    const kept: MemorySample[] = [];
    for (let first = 0; first < memory.length; first += perBucket) {
      const bucket = memory.slice(first, first + perBucket);
      kept.push(bucket.reduce((one, other) => (other.used > one.used ? other : one)));
    }
    const last = memory.at(-1);
    return last && kept.at(-1) !== last ? [...kept, last] : kept;
  }

  /** What the recorder wrote, newest last. */
  phases(): string[] {
    const lines = phaseFiles.flatMap((name) => lastLines(join(this.path, name)));
    return lines.slice(-maxPhases);
  }

  #stepMessages(): string[] {
    try {
      this.steps.count();
      return [];
    } catch (error) {
      return [error instanceof Error ? error.message : String(error)];
    }
  }
}

/** All that is told of a folder in which nothing may be read. */
export function rejectedDetail(name: string, rejection: string): RunDetail {
  return {
    ...{ name, run: null, status: null, results: null, metrics: [], plans: [], incidents: [] },
    messages: [rejection],
  };
}

/** So much of a log's end is looked at. */
const maxTail = MiB;

/** Whole lines at a file's end; none where there is no such file. */
function lastLines(path: string): string[] {
  try {
    const { bytes, before } = readTail(path, maxTail);
    // The first may have lost its beginning, the last is not at its end yet.
    return bytes
      .toString("utf8")
      .split("\n")
      .slice(before > 0 ? 1 : 0, -1);
  } catch {
    return [];
  }
}
