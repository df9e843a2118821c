/**
 * The recorder: a ring of recent events (allocation, free, reset, pin, phase, copy, capture, …) with their op and step.
 * Always on: an event is a few stores into shared memory, so a watcher can read the ring of a hung engine.
 */

import { type Clock, systemClock } from "../../units/index.js";
import { LabelTable } from "./label-table.js";

export const eventKinds = [
  "allocate",
  "free",
  "view",
  "pin",
  "unpin",
  "reset",
  "commit",
  "charge",
  "reject",
  "phase-enter",
  "phase-exit",
  "copy-up",
  "copy-down",
  "capture",
  "replay",
] as const;

export type EventKind = (typeof eventKinds)[number];

/** An event in the recorder. */
export interface RecordedEvent {
  /** Counts from 0 over the whole run, without gaps inside the ring. */
  readonly serial: number;
  readonly atMs: number;
  readonly kind: EventKind;
  /** The op, phase or owner. */
  readonly label: string;
  readonly step: number;
  /** Address, if the event has one. */
  readonly address: number;
  /** Bytes, if the event has them. */
  readonly size: number;
}

const kindIds: Readonly<Record<EventKind, number>> = Object.fromEntries(
  eventKinds.map((kind, id) => [kind, id]),
) as Record<EventKind, number>;

/** f64 fields of an event: time, address, size, kind, label, step. */
const fields = 6;

export class Recorder {
  readonly memory: SharedArrayBuffer;
  readonly labels: LabelTable;
  readonly capacity: number;
  /** [events recorded so far]. */
  readonly #head: Float64Array;
  readonly #ring: Float64Array;
  readonly #clock: Clock;
  /** The current step; 0 before the first. */
  step = 0;

  constructor(
    options: {
      readonly capacity?: number;
      readonly clock?: Clock;
      /** Another thread's recorder to attach to, for reading. */
      readonly memory?: SharedArrayBuffer;
      readonly labels?: LabelTable;
    } = {},
  ) {
    const capacity = options.capacity ?? 8192;
    this.memory = options.memory ?? new SharedArrayBuffer(8 * (1 + capacity * fields));
    this.capacity = (this.memory.byteLength / 8 - 1) / fields;
    this.labels = options.labels ?? new LabelTable();
    this.#head = new Float64Array(this.memory, 0, 1);
    this.#ring = new Float64Array(this.memory, 8);
    this.#clock = options.clock ?? systemClock;
  }

  get recorded(): number {
    return this.#head[0] ?? 0;
  }

  record(kind: EventKind, label: string, address = 0, size = 0): void {
    const serial = this.recorded;
    const start = (serial % this.capacity) * fields;
    const ring = this.#ring;
    ring[start] = this.#clock.nowMs();
    ring[start + 1] = address;
    ring[start + 2] = size;
    ring[start + 3] = kindIds[kind];
    ring[start + 4] = this.labels.idOf(label);
    ring[start + 5] = this.step;
    this.#head[0] = serial + 1;
  }

  /** The last `count` events, oldest first. */
  recent(count: number = this.capacity): RecordedEvent[] {
    const end = this.recorded;
    const start = Math.max(0, end - Math.min(count, this.capacity));
    const events: RecordedEvent[] = [];
    for (let serial = start; serial < end; serial++) {
      const start = (serial % this.capacity) * fields;
      const [atMs = 0, address = 0, size = 0, kind = 0, label = 0, step = 0] = this.#ring.subarray(
        start,
        start + fields,
      );
      events.push({
        serial,
        atMs,
        kind: eventKinds[kind] ?? "allocate",
        label: this.labels.textOf(label),
        step,
        address,
        size,
      });
    }
    return events;
  }
}
