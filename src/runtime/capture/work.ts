/**
 * Work: the one way in which kernels, fills and copies reach a stream. Storages are checked to be alive, the op is noted
 * for stall reports, and during a capture everything that the work touches is collected, so that the graph can own it.
 */

import type { Driver, Event, Kernel, Parameter, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { formatSpan } from "../../units/index.js";
import type { Storage } from "../memory/storage.js";
import type { LabelTable } from "../observe/label-table.js";
import type { SharedStatus } from "../observe/shared-status.js";
import type { CaptureStateMachine } from "./capture-state.js";

/** What a captured function has touched so far. */
export interface AccessSet {
  readonly all: Set<Storage>;
  readonly written: Set<Storage>;
  /** The places that may be written, once they are known: what was not saved before could not be put back. */
  readonly writable: ReadonlySet<string> | undefined;
  /** Pieces of work, each of which must become one node of the graph. */
  pieces: number;
  /** The side streams that were ordered behind the capture's own. */
  readonly streams: Map<Stream, Branch>;
}

/** A side stream of a capture: how much it was given, what it waits for included, and how much of that others wait for. */
export interface Branch {
  given: number;
  joined: number;
}

/** A point in a stream's work that other streams can wait for. */
export interface Mark {
  readonly stream: Stream;
  /** Nothing is sent while a capture only observes. */
  readonly event: Event | undefined;
  /** How much the stream had been given, where it is a side stream of a capture; and which pass of it that was. */
  readonly given: number;
  readonly touched: AccessSet | undefined;
}

/** For the start of a pass; `observed` is what the first pass has shown. */
export function noAccess(observed?: AccessSet): AccessSet {
  const writable = observed && placesOf(observed.written);
  return { all: new Set(), written: new Set(), writable, pieces: 0, streams: new Map() };
}

/** Views are made anew in each pass; what counts is which bytes they show. */
export function placesOf(storages: Iterable<Storage>): Set<string> {
  return new Set([...storages].map(({ span }) => formatSpan(span)));
}

export interface WorkOptions {
  readonly driver: Driver;
  readonly stream: Stream;
  readonly sharedStatus: SharedStatus;
  readonly labels: LabelTable;
  readonly gate: CaptureStateMachine;
  readonly requireLive: (storage: Storage, use: string) => void;
  /** Who keeps a storage's bytes, so that a graph owns the one that lasts. */
  readonly arenaOwnerOf: (storage: Storage) => Storage;
}

export interface LaunchRequest {
  /** The op, for messages and reports. */
  readonly op: string;
  readonly kernel: Kernel;
  readonly blocks: number;
  /** A storage for each memory parameter of the kernel, a number for each scalar. */
  readonly arguments: readonly (Storage | number)[];
  /** The runtime's own stream unless given; order others with `orderStreams`. */
  readonly stream?: Stream;
  /** May it begin while the launch before it on its stream ends, if its kernel waits by itself? */
  readonly isPdl?: boolean;
}

export class Work {
  readonly #options: WorkOptions;
  /** Set by the capture while its function runs. */
  touched: AccessSet | undefined;

  constructor(options: WorkOptions) {
    this.#options = options;
  }

  launch(request: LaunchRequest): void {
    const { op, kernel, blocks, arguments: given, stream = this.#options.stream, isPdl = false } = request;
    this.#requireMember(stream, `launch on stream ${stream.id}`, op);
    const values = given.map((value, index) => {
      if (typeof value === "number") return value;
      this.#note(op, value, kernel.parameters[index]);
      return value.span;
    });
    this.#send(op, () => this.#options.driver.launch(stream, { kernel, blocks, arguments: values, isPdl }));
    const captured = this.touched?.streams.get(stream);
    if (captured) captured.given += 1;
  }

  /** Holds back what `later` is given from now on until `earlier` has done what it was given so far. */
  orderStreams(earlier: Stream, later: Stream): void {
    const mark = this.recordEvent(earlier);
    try {
      this.waitFor(mark, later);
    } finally {
      this.destroyEvent(mark);
    }
  }

  /** Marks what a stream was given so far. The mark is to be ended. */
  recordEvent(stream: Stream): Mark {
    const { driver, gate } = this.#options;
    this.#requireMember(stream, `wait for stream ${stream.id}`, "orderStreams");
    const { touched } = this;
    const given = touched?.streams.get(stream)?.given ?? 0;
    if (gate.state === "observing") return { stream, event: undefined, given, touched };
    const event = driver.createEvent();
    try {
      driver.recordEvent(event, stream);
    } catch (error) {
      driver.destroyEvent(event);
      throw error;
    }
    return { stream, event, given, touched };
  }

  /** Holds back what `later` is given from now on until the marked work is done. */
  waitFor(mark: Mark, later: Stream): void {
    const { driver, stream: own, gate } = this.#options;
    const { stream: earlier, event, given } = mark;
    if (mark.touched !== this.touched)
      gate.rejectInside(`wait for a mark of stream ${earlier.id} from outside`, "waitFor");
    if (this.touched) {
      // Whoever waits for a branch answers for its work from here on.
      const { streams } = this.touched;
      const stream = streams.get(earlier);
      const isOwed = stream !== undefined && stream.joined < given;
      if (stream) stream.joined = Math.max(stream.joined, given);
      if (later !== own) {
        const waiting = streams.get(later) ?? { given: 0, joined: 0 };
        streams.set(later, waiting);
        if (isOwed) waiting.given += 1;
      }
    }
    if (event) driver.waitEvent(later, event);
  }

  /** What waits for it waits on. */
  destroyEvent({ event }: Mark): void {
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

  /** A captured function's work on a stream that the capture does not know would run instead of being recorded. */
  #requireMember(stream: Stream, what: string, label: string): void {
    const isMember = stream === this.#options.stream || this.touched?.streams.has(stream);
    if (!isMember)
      this.#options.gate.rejectInside(`${what}, which is not ordered behind the capture's own`, label);
  }

  #note(op: string, used: Storage, parameter: Parameter | undefined): void {
    this.#options.requireLive(used, op);
    if (!this.touched) return;
    const storage = this.#options.arenaOwnerOf(used);
    const { all, written, writable } = this.touched;
    if (parameter !== "in" && writable && !writable.has(formatSpan(storage.span)))
      throw newTarget(op, storage);
    all.add(storage);
    if (parameter !== "in") written.add(storage);
  }

  #send(op: string, send: () => void): void {
    const { sharedStatus, labels, gate } = this.#options;
    sharedStatus.op = labels.idOf(op);
    if (this.touched) this.touched.pieces += 1;
    if (gate.state !== "observing") send();
  }
}

function newTarget(op: string, storage: Storage): HoldfastError {
  return new HoldfastError(
    "CAPTURE_REJECTED",
    `${op} writes "${storage.label}", which the captured function did not write when it was first run. ` +
      "A captured function must do the same work every time.",
    { numbers: { op, storage: storage.label } },
  );
}
