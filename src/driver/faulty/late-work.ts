/**
 * Late work: issued to a stream, but not yet passed to the driver. The rules of streams still hold: order within a
 * stream, events between streams, and a synchronize that waits for all earlier work.
 */

import type { Event, Stream } from "../driver.js";

/** How late work uses an event. */
export interface EventUse {
  readonly call: "recordEvent" | "waitEvent";
  readonly event: Event;
}

interface Late {
  readonly perform: () => void;
  readonly use: EventUse | undefined;
  /** Set for waits: the work that must run first. */
  readonly after?: LatePosition | undefined;
}

/** A position in a stream's late work. */
interface LatePosition {
  readonly stream: number;
  readonly position: number;
}

export class LateWork {
  readonly #queues = new Map<number, Late[]>();
  /** Number of performed items per stream, so that a position stays valid when the queue shifts. */
  readonly #performed = new Map<number, number>();
  readonly #eventPositions = new Map<number, LatePosition>();
  /** The destruction of an event, to run when no late work uses it. */
  readonly #endings = new Map<number, () => void>();

  hasLateWork(stream: Stream): boolean {
    return (this.#queues.get(stream.id)?.length ?? 0) > 0;
  }

  add(stream: Stream, perform: () => void, use?: EventUse): void {
    const queue = this.#queues.get(stream.id) ?? [];
    this.#queues.set(stream.id, queue);
    const after = use?.call === "waitEvent" ? this.#eventPositions.get(use.event.id) : undefined;
    queue.push({ perform, use, after });
  }

  /** Calls `end` now, or as soon as no late work uses the event. */
  afterUses(event: Event, end: () => void): void {
    if (this.#isUsed(event)) this.#endings.set(event.id, end);
    else end();
  }

  /** Records the event's position in the stream's late work, if it has any. */
  recordEvent(event: Event, stream: Stream): void {
    const queue = this.#queues.get(stream.id);
    if (!queue || queue.length === 0) this.#eventPositions.delete(event.id);
    else {
      const position = (this.#performed.get(stream.id) ?? 0) + queue.length;
      this.#eventPositions.set(event.id, { stream: stream.id, position });
    }
  }

  isPending(event: Event): boolean {
    const position = this.#eventPositions.get(event.id);
    return position !== undefined && (this.#performed.get(position.stream) ?? 0) < position.position;
  }

  performStream(stream: Stream): void {
    this.#performUpTo({ stream: stream.id, position: Number.POSITIVE_INFINITY });
  }

  performEvent(event: Event): void {
    const position = this.#eventPositions.get(event.id);
    if (position) this.#performUpTo(position);
  }

  #performUpTo(position: LatePosition): void {
    const queue = this.#queues.get(position.stream) ?? [];
    while (queue.length > 0 && (this.#performed.get(position.stream) ?? 0) < position.position) {
      const after = queue[0]?.after;
      if (after) this.#performUpTo(after);
      const next = queue.shift();
      this.#performed.set(position.stream, (this.#performed.get(position.stream) ?? 0) + 1);
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
