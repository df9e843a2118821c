/**
 * One capture, as the driver keeps it: which streams are in it, what its work touches, and the first illegal call. Illegal
 * calls are rejected here by name, so CUDA is never asked; like there, they spoil the whole capture.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Span } from "../../units/index.js";
import type { Event, HostMemory, Kernel, Stream } from "../driver.js";

export class CudaCapture {
  readonly origin: Stream;
  /** The streams that have waited for an event recorded inside, and the origin. */
  readonly #members = new Set<Stream>();
  readonly #events = new Set<Event>();
  readonly spans: Span[] = [];
  readonly kernels = new Set<Kernel>();
  readonly hosts = new Set<HostMemory>();
  /** How many nodes libraries have made beyond one for each product. */
  extraNodes = 0;
  #firstIllegalCall: string | undefined;

  constructor(origin: Stream) {
    this.origin = origin;
    this.#members.add(origin);
  }

  includes(stream: Stream): boolean {
    return this.#members.has(stream);
  }

  record(event: Event): void {
    this.#events.add(event);
  }

  holdsEvent(event: Event): boolean {
    return this.#events.has(event);
  }

  /** Later work of the stream belongs to the capture. */
  join(stream: Stream): void {
    this.#members.add(stream);
  }

  /** Rejects a call that is illegal in a capture, and spoils the capture. */
  reject(call: string, wayOut: string): never {
    this.#firstIllegalCall ??= call;
    const message = `${call} is illegal inside the capture on stream #${this.origin.id}; ${wayOut} CUDA was not asked. The capture is spoilt: end it and begin anew.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, { numbers: { call, stream: this.origin.id } });
  }

  requireUnspoiled(): void {
    if (this.#firstIllegalCall === undefined) return;
    const message = `The capture on stream #${this.origin.id} was spoilt by ${this.#firstIllegalCall}, which is illegal inside a capture. Do that before beginCapture or after endCapture.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, {
      numbers: { call: this.#firstIllegalCall, stream: this.origin.id },
    });
  }
}
