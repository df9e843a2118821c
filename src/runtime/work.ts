/**
 * Work: the one way in which kernels, fills and copies reach a stream. Storages are checked to be alive, the op is noted
 * for stall reports, and during a capture everything that the work touches is collected, so that the graph can own it.
 */

import type { Driver, Kernel, Parameter, Stream } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Board } from "./board.js";
import type { CaptureGate } from "./capture-gate.js";
import type { LabelTable } from "./label-table.js";
import type { Storage } from "./storage.js";

/** What a captured function has touched so far. */
export interface Touched {
  readonly all: Set<Storage>;
  readonly written: Set<Storage>;
  /** Pieces of work, each of which must become one node of the graph. */
  pieces: number;
}

export interface WorkOptions {
  readonly driver: Driver;
  readonly stream: Stream;
  readonly board: Board;
  readonly labels: LabelTable;
  readonly gate: CaptureGate;
  readonly requireLive: (storage: Storage, use: string) => void;
}

export interface LaunchRequest {
  /** The op, for messages and reports. */
  readonly op: string;
  readonly kernel: Kernel;
  readonly blocks: number;
  /** A storage for each memory parameter of the kernel, a number for each scalar. */
  readonly arguments: readonly (Storage | number)[];
  /** The runtime's own stream unless given; order other streams with events. */
  readonly stream?: Stream;
}

export class Work {
  readonly #options: WorkOptions;
  /** Set by the capture while its function runs. */
  touched: Touched | undefined;

  constructor(options: WorkOptions) {
    this.#options = options;
  }

  launch({ op, kernel, blocks, arguments: given, stream }: LaunchRequest): void {
    const values = given.map((value, index) => {
      if (typeof value === "number") return value;
      this.#note(op, value, kernel.parameters[index]);
      return value.span;
    });
    const { driver } = this.#options;
    this.#send(op, () =>
      driver.launch(stream ?? this.#options.stream, { kernel, blocks, arguments: values }),
    );
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

  #note(op: string, storage: Storage, parameter: Parameter | undefined): void {
    this.#options.requireLive(storage, op);
    if (!this.touched) return;
    this.touched.all.add(storage);
    if (parameter !== "in") this.touched.written.add(storage);
  }

  #send(op: string, send: () => void): void {
    const { board, labels, gate } = this.#options;
    board.op = labels.idOf(op);
    if (this.touched) this.touched.pieces += 1;
    if (gate.state !== "observing") send();
  }
}
