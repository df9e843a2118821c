/**
 * recorder.log: the events of the device's recorder, one line for each phase, budget charge, capture and rejection. It is written
 * during the run. A full log is renamed to recorder.old.log and replaces the previous one, so the size is bounded.
 */

import { appendFileSync, renameSync, statSync } from "node:fs";
import { errorCode, fileError } from "../../data/index.js";
import type { EventKind, RecordedEvent, Recorder } from "../../runtime/index.js";
import { formatBytes, formatDuration, MiB, systemClock } from "../../units/index.js";

export interface RecorderLogOptions {
  /** Max. bytes of a log; default: 1 MiB. */
  readonly limit?: number;
  /** Converts the recorder's time to milliseconds since 1970; default: by the system's clocks. */
  readonly wallMs?: (atMs: number) => number;
  /** By how many milliseconds the clock of this rank is ahead of rank 0's, whose times the log has; default: 0. */
  readonly clockMs?: number;
}

/** The ring buffer also has every allocation and copy; in the log they would displace the useful events. */
const loggedKinds: ReadonlySet<EventKind> = new Set([
  "phase-enter",
  "phase-exit",
  "charge",
  "commit",
  "capture",
  "reject",
]);

/** The interval between two writes, in milliseconds: shorter than a fast device needs to fill the ring buffer. */
const writeEveryMs = 250;

export class RecorderLog {
  readonly #path: string;
  readonly #recorder: Pick<Recorder, "recorded" | "recent" | "capacity">;
  readonly #limit: number;
  readonly #wallMs: (atMs: number) => number;
  #seen = 0;
  #writtenMs = Number.NEGATIVE_INFINITY;
  #bytes: number;

  /** Continues an existing log. */
  constructor(
    path: string,
    recorder: Pick<Recorder, "recorded" | "recent" | "capacity">,
    {
      limit = MiB,
      clockMs = 0,
      wallMs = (atMs) => Date.now() - systemClock.nowMs() + atMs - clockMs,
    }: RecorderLogOptions = {},
  ) {
    this.#path = path;
    this.#recorder = recorder;
    this.#limit = limit;
    this.#wallMs = wallMs;
    this.#bytes = sizeOf(path);
  }

  /** Writes new events if the interval is over. Cheap enough to call at every step. */
  writeIfDue(): void {
    if (systemClock.nowMs() - this.#writtenMs >= writeEveryMs) this.write();
  }

  /** Writes the events since the last write. */
  write(): void {
    this.#writtenMs = systemClock.nowMs();
    const { recorded, capacity } = this.#recorder;
    const fresh = recorded - this.#seen;
    if (fresh === 0) return;
    const events = this.#recorder.recent(fresh);
    this.#seen = recorded;
    const lost = fresh > capacity ? [`${fresh - capacity} events came too fast and were lost`] : [];
    const entries = foldPhases(events.filter(({ kind }) => loggedKinds.has(kind)));
    const lines = [...lost, ...entries.map((entry) => this.#line(entry))];
    if (lines.length > 0) this.#append(`${lines.join("\n")}\n`);
  }

  #line({ kind, atMs, label, step, size, times, durationMs }: Entry): string {
    const columns = [
      new Date(this.#wallMs(atMs)).toISOString(),
      kind.padEnd(11),
      times > 1 ? `${label} ×${times}` : label,
      ...(durationMs === undefined ? [] : [formatDuration(durationMs)]),
      ...(size > 0 ? [formatBytes(size)] : []),
      ...(step > 0 ? [`step ${step}`] : []),
    ];
    return columns.join("  ");
  }

  #append(text: string): void {
    try {
      if (this.#bytes >= this.#limit) {
        renameSync(this.#path, oldPathOf(this.#path));
        this.#bytes = 0;
      }
      appendFileSync(this.#path, text);
      this.#bytes += Buffer.byteLength(text);
    } catch (error) {
      throw fileError(`${this.#path} can't be written`, this.#path, error);
    }
  }
}

/** A line of the log. */
interface Entry extends Omit<RecordedEvent, "kind"> {
  readonly kind: EventKind | "phase";
  /** The number of equal consecutive events. */
  readonly times: number;
  readonly durationMs?: number;
}

/**
 * A phase without other events becomes one entry, and so do equal phases in a row: a checkpoint reads back every tensor. An entry
 * "phase-enter" was still running when it was written.
 */
function foldPhases(events: readonly RecordedEvent[]): readonly Entry[] {
  const entries: Entry[] = [];
  for (const event of events) {
    const last = entries.at(-1);
    const isEnd = event.kind === "phase-exit" && last?.kind === "phase-enter" && last.label === event.label;
    if (!last || !isEnd) {
      entries.push({ ...event, times: 1 });
      continue;
    }
    entries.pop();
    const before = entries.at(-1);
    const isRow = before?.kind === "phase" && before.label === event.label && before.step === event.step;
    if (isRow) entries.pop();
    const [first, times, durationMs] = isRow
      ? [before, before.times + 1, before.durationMs ?? 0]
      : [last, 1, 0];
    entries.push({ ...first, kind: "phase", times, durationMs: durationMs + event.atMs - last.atMs });
  }
  return entries;
}

/** recorder.log → recorder.old.log */
export function oldPathOf(path: string): string {
  return path.replace(/(\.[^./]+)?$/, ".old$1");
}

function sizeOf(path: string): number {
  try {
    return statSync(path).size;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return 0;
    throw fileError(`${path} can't be opened`, path, error);
  }
}
