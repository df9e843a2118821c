/** One run as the inspector shows it. Each request reads the new data of its folder. */

import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { readTail } from "../files/index.js";
import type { MemorySample } from "../records/index.js";
import {
  healthOf,
  InspectionReader,
  type InspectionReading,
  RanksReader,
  type RanksReading,
  readRun,
} from "../train/index.js";
import { MiB } from "../units/index.js";
import type { RunDetail, RunLine } from "./page/wire.js";
import { type ListedRun, listRuns, phaseFiles, type ShownFolder } from "./run-list.js";
import { StepTable } from "./step-table.js";

/** Newest first. */
export function listLines(shown: ShownFolder): RunLine[] {
  const newest = (line: RunLine): string => line.started ?? line.updated ?? "";
  return listRuns(shown)
    .map(lineOf)
    .sort((a, b) => compare(newest(b), newest(a)) || compare(a.name, b.name));
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function lineOf({ name, path, rejection }: ListedRun): RunLine {
  const nothing = { step: null, of: null, device: null, started: null, updated: null, isLive: false };
  if (rejection !== undefined) return { name, state: "broken", ...nothing, note: rejection };
  const { run, status, messages } = readRun(path, { metrics: false });
  const note = messages[0] ?? null;
  const facts = {
    ...{ device: textOf(run?.device), started: textOf(run?.started) },
    ...{ step: status?.step ?? null, of: status?.of ?? null, updated: status?.updated ?? null },
  };
  if (!status) return { name, state: "broken", ...nothing, ...facts, note: note ?? "It has no status." };
  if (status.state !== "running") return { name, state: status.state, ...facts, isLive: false, note };
  const { state, reason } = healthOf(path);
  if (state === "failed") return { name, state, ...facts, isLive: false, note: reason };
  return { name, state: "running", ...facts, isLive: true, note: state === "stalled" ? reason : note };
}

function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** Max. memory samples in an answer, besides the last. */
const maxSamples = 2000;
/** Max. phase lines in an answer. */
const maxPhases = 2000;

export class RunView {
  readonly name: string;
  readonly path: string;
  readonly steps: StepTable;
  readonly #inspection: InspectionReader;
  readonly #ranks: RanksReader;

  constructor({ name, path }: ListedRun) {
    this.name = name;
    this.path = path;
    this.steps = new StepTable(path);
    this.#inspection = new InspectionReader(path);
    this.#ranks = new RanksReader(path);
  }

  /** Reads new records, and lets other requests run between two chunks. */
  async catchUp(): Promise<void> {
    while (this.#inspection.advance()) await setImmediate();
  }

  inspection(): InspectionReading {
    return this.#inspection.read();
  }

  /** The ranks of a distributed run. */
  ranks(): RanksReading {
    return this.#ranks.read();
  }

  detail(): RunDetail {
    const { run = null, status = null, results = null, metrics, messages } = readRun(this.path);
    const inspected = this.inspection();
    const ranks = this.ranks();
    return {
      ...{ name: this.name, run, status, results, metrics, incidents: inspected.incidents },
      plans: inspected.plans.map(({ name, inputs, mode = null, calls, memory }, index) => ({
        ...{ index, name, inputs, mode, calls: calls.length, peak: memory.peak },
      })),
      messages: [...messages, ...inspected.messages, ...ranks.messages, ...this.#stepMessages()],
      ranks: ranks.ranks.length,
    };
  }

  /** Memory samples: the largest of each group of neighbours, and the last. */
  memory(): readonly MemorySample[] {
    const { memory } = this.inspection();
    const perBucket = Math.ceil(memory.length / maxSamples);
    if (perBucket <= 1) return memory;
    const kept: MemorySample[] = [];
    for (let first = 0; first < memory.length; first += perBucket) {
      const bucket = memory.slice(first, first + perBucket);
      kept.push(bucket.reduce((a, b) => (b.used > a.used ? b : a)));
    }
    const last = memory.at(-1);
    return last && kept.at(-1) !== last ? [...kept, last] : kept;
  }

  /** The recorder's lines, newest last. */
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

/** The answer for a folder that is not read. */
export function rejectedDetail(name: string, rejection: string): RunDetail {
  return {
    ...{ name, run: null, status: null, results: null, metrics: [], plans: [], incidents: [] },
    ...{ messages: [rejection], ranks: 0 },
  };
}

/** Bytes read from the end of a log. */
const maxTail = MiB;

/** The complete lines at a file's end; empty if there is no such file. */
function lastLines(path: string): string[] {
  try {
    const { bytes, before } = readTail(path, maxTail);
    // The first line may be cut, and the last one may be incomplete.
    return bytes
      .toString("utf8")
      .split("\n")
      .slice(before > 0 ? 1 : 0, -1);
  } catch {
    return [];
  }
}
