/**
 * Work that a stream has been given and that has not reached the driver yet: what "late" means. The rules of streams
 * still hold: order inside a stream, events between streams, and a synchronise that waits for everything before it.
 */

import type { Event, Stream } from "../driver.js";

/** How a piece of late work uses an event. */
export interface EventUse {
  readonly call: "recordEvent" | "waitEvent";
  readonly event: Event;
}

interface Late {
  readonly perform: () => void;
  readonly use: EventUse | undefined;
  /** Set for waits: the work that must be performed first. */
  readonly after?: Mark | undefined;
}

/** A place in a stream's late work. */
interface Mark {
  readonly stream: number;
  readonly position: number;
}

export class LateWork {
  readonly #queues = new Map<number, Late[]>();
  /** How many pieces of a stream's work have been performed, so that a mark outlives the queue's shifts. */
  readonly #performed = new Map<number, number>();
  readonly #marks = new Map<number, Mark>();
  /** What is to be done with an event as soon as no late work uses it. */
  readonly #endings = new Map<number, () => void>();

  isBehind(stream: Stream): boolean {
    return (this.#queues.get(stream.id)?.length ?? 0) > 0;
  }

  add(stream: Stream, perform: () => void, use?: EventUse): void {
    const queue = this.#queues.get(stream.id) ?? [];
    this.#queues.set(stream.id, queue);
    const after = use?.call === "waitEvent" ? this.#marks.get(use.event.id) : undefined;
    queue.push({ perform, use, after });
  }

  /** Ends an event now, or as soon as no late work uses it. */
  afterUses(event: Event, end: () => void): void {
    if (this.#isUsed(event)) this.#endings.set(event.id, end);
    else end();
  }

  /** Notes where in the late work an event stands, or that it stands behind none. */
  mark(event: Event, stream: Stream): void {
    const queue = this.#queues.get(stream.id);
    if (!queue || queue.length === 0) this.#marks.delete(event.id);
    else {
      const position = (this.#performed.get(stream.id) ?? 0) + queue.length;
      this.#marks.set(event.id, { stream: stream.id, position });
    }
  }

  isPending(event: Event): boolean {
    const mark = this.#marks.get(event.id);
    return mark !== undefined && (this.#performed.get(mark.stream) ?? 0) < mark.position;
  }

  performStream(stream: Stream): void {
    this.#performUpTo({ stream: stream.id, position: Number.POSITIVE_INFINITY });
  }

  performEvent(event: Event): void {
    const mark = this.#marks.get(event.id);
    if (mark) this.#performUpTo(mark);
  }

  #performUpTo(mark: Mark): void {
    const queue = this.#queues.get(mark.stream) ?? [];
    while (queue.length > 0 && (this.#performed.get(mark.stream) ?? 0) < mark.position) {
      const after = queue[0]?.after;
      if (after) this.#performUpTo(after);
      const next = queue.shift();
      this.#performed.set(mark.stream, (this.#performed.get(mark.stream) ?? 0) + 1);
      next?.perform();
      if (next?.use) this.#endIfUnused(next.use.event);
    }
  }

  #isUsed(event: Event): boolean {
    return [...this.#queues.values()].some((queue) => queue.some(({ use }) => use?.event.id === event.id));
  }

  #endIfUnused(event: Event): void {
    const end = this.#endings.get(event.id);
    if (!end || this.#isUsed(event)) return;
    this.#endings.delete(event.id);
    end();
  }
}
