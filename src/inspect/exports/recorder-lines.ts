/** Parses the recorder's log of a run: phases as nested spans, and instant events. */

import { join } from "node:path";
import { readTail } from "../../files/index.js";
import { recorderOfRank } from "../../train/index.js";
import { MiB, parseDuration } from "../../units/index.js";
import type { EventArgs, TraceSpan } from "./trace-events.js";

export interface RecorderReading {
  readonly phases: readonly TraceSpan[];
  readonly instants: readonly {
    readonly name: string;
    readonly cat: string;
    readonly atMs: number;
    readonly args: EventArgs;
  }[];
  /** Older lines that were not read. */
  readonly omitted: number;
}

/** The last lines of a rank's log; empty without a log. */
export function readRecorder(runPath: string, maxLines: number, rank = 0): RecorderReading {
  const name = recorderOfRank(rank);
  const files = [name.replace(/\.log$/, ".old.log"), name];
  const lines = files.flatMap((file) => linesOf(join(runPath, file)));
  const kept = lines.slice(-maxLines);
  return { ...readLines(kept), omitted: lines.length - kept.length };
}

/** The recorder starts a new log long before this size. */
const maxLogBytes = 16 * MiB;

function linesOf(path: string): string[] {
  try {
    // The first line of a longer log is cut, and the last line may be incomplete.
    const { bytes, before } = readTail(path, maxLogBytes);
    return bytes
      .toString("utf8")
      .split("\n")
      .slice(before > 0 ? 1 : 0, -1);
  } catch {
    return [];
  }
}

interface RecorderLine {
  readonly atMs: number;
  readonly kind: string;
  readonly label: string;
  readonly durationMs: number;
  readonly step: number | undefined;
  readonly details: string;
}

/** Parses `time  kind  label  …`, separated by two or more spaces; undefined for other lines. */
function parseLine(line: string): RecorderLine | undefined {
  const [time = "", kind = "", label = "", ...rest] = line.split(/ {2,}/);
  const atMs = Date.parse(time);
  if (Number.isNaN(atMs) || kind === "" || label === "") return undefined;
  const step = rest.map((text) => /^step (\d+)$/.exec(text)?.[1]).find((match) => match !== undefined);
  const duration = kind === "phase" ? rest[0] : undefined;
  return {
    ...{ atMs, kind, label, durationMs: duration === undefined ? 0 : durationOf(duration) },
    ...{ step: step === undefined ? undefined : Number(step), details: rest.join(", ") },
  };
}

/** Accepts "0ms" too, which is invalid as a setting but possible for a phase. */
function durationOf(text: string): number {
  try {
    return parseDuration(text);
  } catch {
    return 0;
  }
}

interface OpenSpan {
  readonly name: string;
  readonly startMs: number;
  readonly step: number | undefined;
  readonly inner: TraceSpan[];
}

function readLines(lines: readonly string[]): Pick<RecorderReading, "phases" | "instants"> {
  const phases: TraceSpan[] = [];
  const instants: RecorderReading["instants"][number][] = [];
  const open: OpenSpan[] = [];
  let lastMs = 0;
  const add = (span: TraceSpan): void => {
    (open.at(-1)?.inner ?? phases).push(span);
  };
  const close = (endMs: number, note?: string): void => {
    const ended = open.pop();
    if (!ended) return;
    const { name, startMs, step, inner } = ended;
    add({
      ...{ name, cat: categoryOf(name), startMs, durationMs: endMs - startMs, inner },
      args: { step, note },
    });
  };
  const closeAll = (note: string): void => {
    while (open.length > 0) close(lastMs, note);
  };
  for (const line of lines) {
    const parsed = parseLine(line);
    if (!parsed) continue;
    const { atMs, kind, label, durationMs, step, details } = parsed;
    // A device is opened: open phases of an earlier process have ended.
    if (label === "init" && kind !== "phase-exit") closeAll("end not recorded");
    if (kind === "phase") {
      add({ name: label, cat: categoryOf(label), startMs: atMs, durationMs, args: { step } });
    } else if (kind === "phase-enter") {
      open.push({ name: label, startMs: atMs, step, inner: [] });
    } else if (kind === "phase-exit") {
      const depth = open.findLastIndex(({ name }) => name === label);
      // Its start may be in an older log.
      if (depth >= 0) while (open.length > depth) close(atMs);
    } else instants.push({ name: `${kind} ${label}`, cat: kind, atMs, args: { step, details } });
    lastMs = Math.max(lastMs, atMs + durationMs);
  }
  closeAll("still running at the end of the log");
  return { phases, instants };
}

/** Copies between host and device are separate phases. */
function categoryOf(label: string): string {
  return /^(upload|read-back)/.test(label) ? "copy" : "phase";
}
