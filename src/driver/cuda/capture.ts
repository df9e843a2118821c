/**
 * The driver's record of one capture: its streams, the memory that it accesses, and the first illegal call. Illegal
 * calls are rejected here by name, before CUDA sees them. As on CUDA, they invalidate the whole capture.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Span } from "../../units/index.js";
import type { Event, HostMemory, Kernel, NodeCount, Stream } from "../driver.js";

export const noNodes: NodeCount = { kernel: 0, copy: 0, fill: 0, memory: 0, host: 0 };

const nodeKinds = [
  "kernel",
  "copy",
  "fill",
  "memory",
  "host",
] as const satisfies readonly (keyof NodeCount)[];

export class CudaCapture {
  readonly origin: Stream;
  /** The origin stream, and the streams that have waited for an event recorded inside. */
  readonly #members = new Set<Stream>();
  readonly #events = new Set<Event>();
  readonly spans: Span[] = [];
  readonly kernels = new Set<Kernel>();
  readonly hosts = new Set<HostMemory>();
  /** Nodes that libraries recorded, less one kernel for each launch. */
  readonly extraNodes: Record<keyof NodeCount, number> = { ...noNodes };
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

  /** A library has recorded the nodes that `after` has in addition to those of `before`, for one launch. */
  countAsKernel(before: NodeCount, after: NodeCount): void {
    for (const kind of nodeKinds) this.extraNodes[kind] += after[kind] - before[kind];
    this.extraNodes.kernel -= 1;
  }

  /** Rejects a call that is illegal in a capture, and invalidates the capture. */
  reject(call: string, advice: string): never {
    this.#firstIllegalCall ??= call;
    const message = `${call} is illegal inside the capture on stream #${this.origin.id}; ${advice} CUDA was not called. The capture is now invalid: end it and start a new one.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, { numbers: { call, stream: this.origin.id } });
  }

  requireValid(): void {
    if (this.#firstIllegalCall === undefined) return;
    const message = `The capture on stream #${this.origin.id} was invalidated by ${this.#firstIllegalCall}, which is illegal inside a capture. Call it before beginCapture or after endCapture.`;
    throw new HoldfastError("CAPTURE_REJECTED", message, {
      numbers: { call: this.#firstIllegalCall, stream: this.origin.id },
    });
  }
}

/** The nodes of a graph, with each launch of a library as one kernel. */
export function subtractNodes(nodes: NodeCount, extra: NodeCount): NodeCount {
  const rest: Record<keyof NodeCount, number> = { ...nodes };
  for (const kind of nodeKinds) rest[kind] -= extra[kind];
  return rest;
}
