/**
 * recorder.log: what the device's recorder has seen of a run, a line for each phase, each charge to the budget, each capture and
 * each rejection. It is written as the run goes on and never grows past twice its limit: a full log
 * becomes recorder.old.log, and the one before that goes.
 */

import { appendFileSync, renameSync, statSync } from "node:fs";
import { errorCode, fileError } from "../../data/index.js";
import type { EventKind, RecordedEvent, Recorder } from "../../runtime/index.js";
import { formatBytes, formatDuration, MiB, systemClock } from "../../units/index.js";

export interface RecorderLogOptions {
  /** Bytes of a full log; 1 MiB unless given. */
  readonly limit?: number;
  /** Milliseconds since 1970 of a time that the recorder tells; by the system's clocks unless given. */
  readonly wallMs?: (atMs: number) => number;
}

/** The ring has every allocation and copy too; they would push out of the log what a person looks for in it. */
const kept: ReadonlySet<EventKind> = new Set([
  "phase-enter",
  "phase-exit",
  "charge",
  "commit",
  "capture",
  "reject",
]);

/** Between two looks that nothing asks for, in milliseconds: sooner than a fast device fills the ring. */
const lookEveryMs = 250;

export class RecorderLog {
  readonly #path: string;
  readonly #recorder: Pick<Recorder, "recorded" | "recent" | "capacity">;
  readonly #limit: number;
  readonly #wallMs: (atMs: number) => number;
  #seen = 0;
  #lookedMs = Number.NEGATIVE_INFINITY;
  #bytes: number;

  /** Goes on with the log that is there. */
  constructor(
    path: string,
    recorder: Pick<Recorder, "recorded" | "recent" | "capacity">,
    { limit = MiB, wallMs = (atMs) => Date.now() - systemClock.nowMs() + atMs }: RecorderLogOptions = {},
  ) {
    this.#path = path;
    this.#recorder = recorder;
    this.#limit = limit;
    this.#wallMs = wallMs;
    this.#bytes = sizeOf(path);
  }

  /** For who calls it at every step: writes what has come, a few times in a second. */
  glance(): void {
    if (systemClock.nowMs() - this.#lookedMs >= lookEveryMs) this.write();
  }

  /** Writes what has come since the last time. */
  write(): void {
    this.#lookedMs = systemClock.nowMs();
    const { recorded, capacity } = this.#recorder;
    const fresh = recorded - this.#seen;
    if (fresh === 0) return;
    const events = this.#recorder.recent(fresh);
    this.#seen = recorded;
    const lost = fresh > capacity ? [`${fresh - capacity} events came too fast to be written down`] : [];
    const entries = foldPhases(events.filter(({ kind }) => kept.has(kind)));
    const lines = [...lost, ...entries.map((entry) => this.#line(entry))];
    if (lines.length > 0) this.#append(`${lines.join("\n")}\n`);
  }

  #line({ kind, atMs, label, step, size, times, lastedMs }: Entry): string {
    const parts = [
      new Date(this.#wallMs(atMs)).toISOString(),
      kind.padEnd(11),
      times > 1 ? `${label} ×${times}` : label,
      ...(lastedMs === undefined ? [] : [formatDuration(lastedMs)]),
      ...(size > 0 ? [formatBytes(size)] : []),
      ...(step > 0 ? [`step ${step}`] : []),
    ];
    return parts.join("  ");
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

/** What becomes a line. */
interface Entry extends Omit<RecordedEvent, "kind"> {
  readonly kind: EventKind | "phase";
  /** How many alike stand one behind the other. */
  readonly times: number;
  readonly lastedMs?: number;
}

/**
 * A phase in which nothing else was seen is one entry, and many of them in a row are one too: a checkpoint reads back every tensor.
 * An entry that says "phase-enter" was not over when it was written.
 */
function foldPhases(events: readonly RecordedEvent[]): readonly Entry[] {
  const entries: Entry[] = [];
  for (const event of events) {
    const last = entries.at(-1);
    const isOver = event.kind === "phase-exit" && last?.kind === "phase-enter" && last.label === event.label;
    if (!last || !isOver) {
      entries.push({ ...event, times: 1 });
      continue;
    }
    entries.pop();
    const before = entries.at(-1);
    const isRow = before?.kind === "phase" && before.label === event.label && before.step === event.step;
    if (isRow) entries.pop();
    const [first, times, lastedMs] = isRow ? [before, before.times + 1, before.lastedMs ?? 0] : [last, 1, 0];
    entries.push({ ...first, kind: "phase", times, lastedMs: lastedMs + event.atMs - last.atMs });
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
