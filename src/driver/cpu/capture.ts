/**
 * One stream capture: its streams, their recorded commands, and the first illegal call. As on CUDA, a stream joins the
 * capture by waiting for an event recorded inside it. An illegal call invalidates the whole capture: every later use
 * fails and names that call, until `end` releases the streams.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Command } from "./commands.js";
import type { CommandQueue } from "./stream.js";

/** For each stream, the number of its recorded commands that come earlier. */
type Clock = Map<CommandQueue, number>;

/** The position of an event recorded inside a capture. */
export interface CapturedPosition {
  readonly capture: Capture;
  readonly clock: ReadonlyMap<CommandQueue, number>;
}

export class Capture {
  readonly origin: CommandQueue;
  /** In issue order, which satisfies every event dependency. */
  readonly #commands: Command[] = [];
  readonly #clocks = new Map<CommandQueue, Clock>();
  #firstIllegalCall: string | undefined;

  constructor(origin: CommandQueue) {
    this.origin = origin;
    this.#clocks.set(origin, new Map());
  }

  includes(stream: CommandQueue): boolean {
    return this.#clocks.has(stream);
  }

  record(stream: CommandQueue, commands: readonly Command[]): void {
    this.#requireValid();
    const clock = this.#clockOf(stream);
    this.#commands.push(...commands);
    clock.set(stream, (clock.get(stream) ?? 0) + commands.length);
  }

  recordPosition(stream: CommandQueue): CapturedPosition {
    this.#requireValid();
    return { capture: this, clock: new Map(this.#clockOf(stream)) };
  }

  /** Orders the stream's later work after the position. A stream outside the capture joins it. */
  join(stream: CommandQueue, position: CapturedPosition): void {
    this.#requireValid();
    const clock = this.#clockOf(stream);
    for (const [other, count] of position.clock) clock.set(other, Math.max(count, clock.get(other) ?? 0));
  }

  /** Rejects a call that is illegal in a capture, and invalidates the capture. */
  reject(call: string, advice: string): never {
    this.#firstIllegalCall ??= call;
    const message = `${call} is illegal inside the capture on stream #${this.origin.id}; ${advice} The capture is now invalid: end it and start a new one.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, { numbers: { call, stream: this.origin.id } });
  }

  /** Returns the recorded commands, or throws if they cannot form a graph. */
  end(): readonly Command[] {
    this.#requireValid();
    const ordered = this.#clockOf(this.origin);
    for (const [stream, clock] of this.#clocks) {
      const unjoined = (clock.get(stream) ?? 0) - (ordered.get(stream) ?? 0);
      if (unjoined > 0) {
        const message = `The capture on stream #${this.origin.id} ended while ${unjoined} commands of stream #${stream.id} were not joined to it. Before endCapture, record an event on stream #${stream.id} and let stream #${this.origin.id} wait for it.`;
        throw new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id, unjoined } });
      }
    }
    return this.#commands;
  }

  #clockOf(stream: CommandQueue): Clock {
    const clock = this.#clocks.get(stream) ?? new Map<CommandQueue, number>();
    this.#clocks.set(stream, clock);
    return clock;
  }

  #requireValid(): void {
    if (this.#firstIllegalCall === undefined) return;
    const message = `The capture on stream #${this.origin.id} was invalidated by ${this.#firstIllegalCall}, which is illegal inside a capture. Call it before beginCapture or after endCapture.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, {
      numbers: { call: this.#firstIllegalCall, stream: this.origin.id },
    });
  }
}
