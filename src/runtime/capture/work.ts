/**
 * Issues all launches, fills and copies of a runtime. It checks that storages are live and notes the op for stall
 * reports. During a capture it collects the accessed storages, so that the graph can own them.
 */

import type { Driver, Event, Kernel, Parameter, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { formatSpan } from "../../units/index.js";
import { countWrite } from "../memory/persistent.js";
import type { Storage } from "../memory/storage.js";
import type { LabelTable } from "../observe/label-table.js";
import type { SharedStatus } from "../observe/shared-status.js";
import type { CaptureStateMachine } from "./capture-state.js";

/** The storages that a captured function has accessed so far. */
export interface AccessSet {
  readonly all: Set<Storage>;
  readonly written: Set<Storage>;
  /** The spans that passes after the first may write. Other spans were not saved and could not be restored. */
  readonly writable: ReadonlySet<string> | undefined;
  /** Number of issued commands; each must become one node of the graph. */
  commands: number;
  /** The side streams that wait for the captured stream, directly or through others. */
  readonly streams: Map<Stream, SideStream>;
}

/** A side stream of a capture: the number of its commands and waits, and how many of these another stream waits for. */
export interface SideStream {
  issued: number;
  awaited: number;
}

/** A point in a stream's work that other streams can wait for. */
export interface StreamEvent {
  readonly stream: Stream;
  /** Undefined while a capture only observes: nothing is issued then. */
  readonly event: Event | undefined;
  /** For a side stream of a capture: its `issued` count at the event, and the access set of the pass. */
  readonly issued: number;
  readonly accesses: AccessSet | undefined;
}

/** The empty access set for the start of a pass. `observed` is the set of the first pass. */
export function emptyAccessSet(observed?: AccessSet): AccessSet {
  const writable = observed && spanKeys(observed.written);
  return { all: new Set(), written: new Set(), writable, commands: 0, streams: new Map() };
}

/**
 * The spans of storages as comparable keys. Each pass creates new views, so storages cannot be compared by identity.
 */
export function spanKeys(storages: Iterable<Storage>): Set<string> {
  return new Set([...storages].map(({ span }) => formatSpan(span)));
}

export interface WorkOptions {
  readonly driver: Driver;
  readonly stream: Stream;
  readonly sharedStatus: SharedStatus;
  readonly labels: LabelTable;
  readonly captureState: CaptureStateMachine;
  readonly requireLive: (storage: Storage, use: string) => void;
  /** The storage that owns a view's bytes. A graph pins that storage, not the view. */
  readonly arenaOwnerOf: (storage: Storage) => Storage;
}

export interface LaunchRequest {
  /** The op, for messages and reports. */
  readonly op: string;
  readonly kernel: Kernel;
  readonly blocks: number;
  /** A storage for each memory parameter of the kernel, a number for each scalar. */
  readonly arguments: readonly (Storage | number)[];
  /** Default: the runtime's stream. Order others with `orderStreams`. */
  readonly stream?: Stream;
  /** Programmatic dependent launch: it may start while its predecessor on the stream ends, if its kernel waits. */
  readonly isPdl?: boolean;
}

/** Launches that do not become part of a graph. */
export interface LaunchesApart {
  includes(kernel: Kernel): boolean;
  add(launch: () => void): void;
}

export class Work {
  readonly #options: WorkOptions;
  /** Set by the capture while its function runs. */
  accesses: AccessSet | undefined;
  /** Set by the capture while it records graphs with launches between them. */
  apart: LaunchesApart | undefined;

  constructor(options: WorkOptions) {
    this.#options = options;
  }

  launch(request: LaunchRequest): void {
    const { op, kernel, blocks, arguments: passed, stream = this.#options.stream, isPdl = false } = request;
    this.#requireCaptured(stream, `launch on stream ${stream.id}`, op);
    const values = passed.map((value, index) => {
      if (typeof value === "number") return value;
      this.#note(op, value, kernel.parameters[index]);
      return value.span;
    });
    const launch = (): void =>
      this.#options.driver.launch(stream, { kernel, blocks, arguments: values, isPdl });
    this.#send(op, this.apart?.includes(kernel) ? () => this.apart?.add(launch) : launch);
    const captured = this.accesses?.streams.get(stream);
    if (captured) captured.issued += 1;
  }

  /** Makes later work of `later` wait for all work issued to `earlier` so far. */
  orderStreams(earlier: Stream, later: Stream): void {
    const event = this.recordEvent(earlier);
    try {
      this.waitEvent(event, later);
    } finally {
      this.destroyEvent(event);
    }
  }

  /** Records an event after all work issued to a stream so far. The caller destroys it. */
  recordEvent(stream: Stream): StreamEvent {
    const { driver, captureState } = this.#options;
    this.#requireCaptured(stream, `wait for stream ${stream.id}`, "orderStreams");
    const { accesses } = this;
    const issued = accesses?.streams.get(stream)?.issued ?? 0;
    if (captureState.state === "observing") return { stream, event: undefined, issued, accesses };
    const event = driver.createEvent();
    try {
      driver.recordEvent(event, stream);
    } catch (error) {
      driver.destroyEvent(event);
      throw error;
    }
    return { stream, event, issued, accesses };
  }

  /** Makes later work of `later` wait for the event. */
  waitEvent({ stream: earlier, event, issued, accesses }: StreamEvent, later: Stream): void {
    const { driver, stream: main, captureState } = this.#options;
    if (accesses !== this.accesses)
      captureState.rejectInside(
        `wait for an event of stream ${earlier.id} that was recorded outside the capture`,
        "waitEvent",
      );
    if (this.accesses) {
      // A stream that waits for a side stream must itself be joined from here on.
      const { streams } = this.accesses;
      const stream = streams.get(earlier);
      const isUnjoined = stream !== undefined && stream.awaited < issued;
      if (stream) stream.awaited = Math.max(stream.awaited, issued);
      if (later !== main) {
        const waiting = streams.get(later) ?? { issued: 0, awaited: 0 };
        streams.set(later, waiting);
        if (isUnjoined) waiting.issued += 1;
      }
    }
    if (event) driver.waitEvent(later, event);
  }

  /** Destroys an event. Streams that already wait for it still do. */
  destroyEvent({ event }: StreamEvent): void {
    if (event) this.#options.driver.destroyEvent(event);
  }

  /** Sets every byte. */
  fill(target: Storage, byte: number, op = "fill"): void {
    this.#note(op, target, "out");
    this.#send(op, () => this.#options.driver.fill(this.#options.stream, target.span, byte));
  }

  copy(target: Storage, source: Storage, op = "copy"): void {
    if (target.span.size !== source.span.size) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${op}: "${source.label}" has ${source.span.size} bytes and "${target.label}" has ${target.span.size}; they must be equal.`,
        { numbers: { source: source.span.size, target: target.span.size } },
      );
    }
    this.#note(op, source, "in");
    this.#note(op, target, "out");
    const { driver, stream } = this.#options;
    this.#send(op, () => driver.copyOnDevice(stream, target.span, source.span));
  }

  /** Inside a capture, work on a stream outside the capture would run instead of being recorded. */
  #requireCaptured(stream: Stream, what: string, label: string): void {
    const isCaptured = stream === this.#options.stream || this.accesses?.streams.has(stream);
    if (!isCaptured)
      this.#options.captureState.rejectInside(`${what}, which does not wait for the captured stream,`, label);
  }

  #note(op: string, used: Storage, parameter: Parameter | undefined): void {
    this.#options.requireLive(used, op);
    if (parameter !== "in") countWrite(used);
    if (!this.accesses) return;
    const storage = this.#options.arenaOwnerOf(used);
    const { all, written, writable } = this.accesses;
    if (parameter !== "in" && writable && !writable.has(formatSpan(storage.span)))
      throw newTarget(op, storage);
    all.add(storage);
    if (parameter !== "in") written.add(storage);
  }

  #send(op: string, send: () => void): void {
    const { sharedStatus, labels, captureState } = this.#options;
    sharedStatus.op = labels.idOf(op);
    if (this.accesses) this.accesses.commands += 1;
    if (captureState.state !== "observing") send();
  }
}

function newTarget(op: string, storage: Storage): HoldfastError {
  return new HoldfastError(
    "CAPTURE_REJECTED",
    `${op} writes "${storage.label}", which the captured function did not write in its first run. ` +
      "A captured function must do the same work every time.",
    { numbers: { op, storage: storage.label } },
  );
}
