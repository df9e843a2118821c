/**
 * Happens-before of streams and the host, by vector clocks. Every stream and the host is a timeline. An access is legal
 * only if all conflicting accesses on other timelines are known to have completed.
 */

import { HoldfastError } from "../../errors/index.js";
import { endOf, formatSpan, type Span } from "../../units/index.js";

/** Timeline 0 is the host; a stream's timeline is its id + 1. */
export const hostTimeline = 0;

/** Space 0 is device memory; each pinned host allocation is a space of its own. */
export interface Access {
  readonly space: number;
  readonly range: Span;
  readonly isWrite: boolean;
  /** The accessor, for messages: `launch of add`, `the host`. */
  readonly what: string;
}

interface PastAccess extends Access {
  readonly tick: number;
}

type VectorClock = Map<number, number>;

function merge(into: VectorClock, from: VectorClock): void {
  for (const [timeline, tick] of from) {
    if (tick > (into.get(timeline) ?? 0)) into.set(timeline, tick);
  }
}

function conflict(a: Access, b: Access): boolean {
  return (
    a.space === b.space &&
    (a.isWrite || b.isWrite) &&
    a.range.address < endOf(b.range) &&
    b.range.address < endOf(a.range)
  );
}

function describeTimeline(timeline: number): string {
  return timeline === hostTimeline ? "" : ` on stream ${timeline - 1}`;
}

export class HappensBefore {
  readonly #clocks = new Map<number, VectorClock>();
  readonly #events = new Map<number, VectorClock>();
  readonly #history = new Map<number, PastAccess[]>();

  /** Checks the accesses of a call, makes the call, and only then records them: a call that throws leaves no trace. */
  access<T>(timeline: number, accesses: readonly Access[], call: () => T): T {
    const clock = this.#clockOf(timeline);
    // The host issued this call, so the stream comes after everything that the host knows to have completed.
    if (timeline !== hostTimeline) merge(clock, this.#clockOf(hostTimeline));
    for (const [other, history] of this.#history) {
      if (other === timeline) continue;
      const completed = clock.get(other) ?? 0;
      for (const earlier of history) {
        if (earlier.tick <= completed) continue;
        const conflicting = accesses.find((access) => conflict(access, earlier));
        if (conflicting) {
          throw new HoldfastError(
            "UNORDERED_ACCESS",
            `${conflicting.what}${describeTimeline(timeline)} accesses ${formatSpan(conflicting.range)}, which ${earlier.what}` +
              `${describeTimeline(other)} accesses too, and nothing orders the two. Record an event after the first and let the second wait for it, ` +
              "or synchronize.",
            { numbers: { address: conflicting.range.address, size: conflicting.range.size } },
          );
        }
      }
    }
    const result = call();
    const tick = (clock.get(timeline) ?? 0) + 1;
    clock.set(timeline, tick);
    // The host's accesses precede everything that it issues later, so they need no history.
    if (timeline === hostTimeline) return result;
    const past = accesses.map((access) => ({ ...access, tick }));
    const history = this.#history.get(timeline);
    if (history) history.push(...past);
    else this.#history.set(timeline, past);
    return result;
  }

  record(event: number, timeline: number): void {
    this.#events.set(event, new Map(this.#clockOf(timeline)));
  }

  wait(timeline: number, event: number): void {
    merge(this.#clockOf(timeline), this.#events.get(event) ?? new Map());
  }

  /** The host now knows that everything before the event has completed. */
  hostReached(event: number): void {
    this.wait(hostTimeline, event);
    this.#dropCompleted();
  }

  hostSynchronized(timeline: number): void {
    merge(this.#clockOf(hostTimeline), this.#clockOf(timeline));
    this.#dropCompleted();
  }

  /** An access that the host knows to have completed cannot conflict with later calls. */
  #dropCompleted(): void {
    const hostClock = this.#clockOf(hostTimeline);
    for (const [timeline, history] of this.#history) {
      const completed = hostClock.get(timeline) ?? 0;
      this.#history.set(
        timeline,
        history.filter((access) => access.tick > completed),
      );
    }
  }

  #clockOf(timeline: number): VectorClock {
    const existing = this.#clocks.get(timeline);
    if (existing) return existing;
    const clock: VectorClock = new Map();
    this.#clocks.set(timeline, clock);
    return clock;
  }
}
