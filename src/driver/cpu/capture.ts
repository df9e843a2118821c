/**
 * One capture, from begin to end: which streams are in it, what they were told to do, and the first illegal call.
 * As on CUDA, a stream joins by waiting for an event recorded inside, and an illegal call spoils the whole capture:
 * from then on every use of it fails, naming that first call, until `end` frees its streams.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Command } from "./commands.js";
import type { CommandQueue } from "./stream.js";

/** Of each stream, how many of its recorded commands are known to come before. */
type Clock = Map<CommandQueue, number>;

/** An event's mark inside a capture. */
export interface CapturedMark {
  readonly capture: Capture;
  readonly clock: ReadonlyMap<CommandQueue, number>;
}

export class Capture {
  readonly origin: CommandQueue;
  /** In the order of issue, which keeps every order that events ask for. */
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
    this.#requireUnspoiled();
    const clock = this.#clockOf(stream);
    this.#commands.push(...commands);
    clock.set(stream, (clock.get(stream) ?? 0) + commands.length);
  }

  mark(stream: CommandQueue): CapturedMark {
    this.#requireUnspoiled();
    return { capture: this, clock: new Map(this.#clockOf(stream)) };
  }

  /** Puts the stream's later work behind the mark, taking the stream into the capture if it was outside. */
  join(stream: CommandQueue, mark: CapturedMark): void {
    this.#requireUnspoiled();
    const clock = this.#clockOf(stream);
    for (const [other, count] of mark.clock) clock.set(other, Math.max(count, clock.get(other) ?? 0));
  }

  /** Rejects a call that is illegal in a capture, and spoils the capture. */
  reject(call: string, wayOut: string): never {
    this.#firstIllegalCall ??= call;
    const message = `${call} is illegal inside the capture on stream #${this.origin.id}; ${wayOut} The capture is spoilt: end it and begin anew.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, { numbers: { call, stream: this.origin.id } });
  }

  /** Gives what was recorded, or says why it can't be a graph. */
  end(): readonly Command[] {
    this.#requireUnspoiled();
    const ordered = this.#clockOf(this.origin);
    for (const [stream, clock] of this.#clocks) {
      const unjoined = (clock.get(stream) ?? 0) - (ordered.get(stream) ?? 0);
      if (unjoined > 0) {
        const message = `The capture on stream #${this.origin.id} ended with ${unjoined} commands of stream #${stream.id} that it never waited for. Before the end, record an event on stream #${stream.id} and let stream #${this.origin.id} wait for it.`;
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

  #requireUnspoiled(): void {
    if (this.#firstIllegalCall === undefined) return;
    const message = `The capture on stream #${this.origin.id} was spoilt by ${this.#firstIllegalCall}, which is illegal inside a capture. Do that before beginCapture or after endCapture.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, {
      numbers: { call: this.#firstIllegalCall, stream: this.origin.id },
    });
  }
}
