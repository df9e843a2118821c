/**
 * Happens-before for streams and the host, by vector clocks. Every stream and the host is a timeline; an access is
 * legal only if whatever touched the same bytes before, on another timeline, is known to have ended.
 */

import { HoldfastError } from "../../errors/index.js";
import { endOf, formatSpan, type Span } from "../../units/index.js";

/** Timeline 0 is the host; a stream's timeline is its id + 1. */
export const hostTimeline = 0;

/** Space 0 is device memory; each pinned host memory is a space of its own. */
export interface Access {
  readonly space: number;
  readonly range: Span;
  readonly isWrite: boolean;
  /** What does it, for the message: `launch of add`, `the host's look`. */
  readonly what: string;
}

interface Happened extends Access {
  readonly tick: number;
}

type VectorClock = Map<number, number>;

function merge(into: VectorClock, from: VectorClock): void {
  for (const [timeline, tick] of from) {
    if (tick > (into.get(timeline) ?? 0)) into.set(timeline, tick);
  }
}

function collide(a: Access, b: Access): boolean {
  return (
    a.space === b.space &&
    (a.isWrite || b.isWrite) &&
    a.range.address < endOf(b.range) &&
    b.range.address < endOf(a.range)
  );
}

function placeOf(timeline: number): string {
  return timeline === hostTimeline ? "" : ` on stream ${timeline - 1}`;
}

export class Order {
  readonly #clocks = new Map<number, VectorClock>();
  readonly #marks = new Map<number, VectorClock>();
  readonly #history = new Map<number, Happened[]>();

  /** Checks what one call touches, makes the call, and only then notes it: a call that throws leaves no trace. */
  access<T>(timeline: number, accesses: readonly Access[], call: () => T): T {
    const clock = this.#clockOf(timeline);
    // The host issued this call, so whatever the host knows to have ended, the stream comes after.
    if (timeline !== hostTimeline) merge(clock, this.#clockOf(hostTimeline));
    for (const [other, history] of this.#history) {
      if (other === timeline) continue;
      const known = clock.get(other) ?? 0;
      for (const earlier of history) {
        if (earlier.tick <= known) continue;
        const hit = accesses.find((access) => collide(access, earlier));
        if (hit) {
          throw new HoldfastError(
            "UNORDERED_ACCESS",
            `${hit.what}${placeOf(timeline)} touches ${formatSpan(hit.range)}, which ${earlier.what}` +
              `${placeOf(other)} touches too, and nothing orders the two. Record an event there and wait for it here, ` +
              "or synchronise.",
            { numbers: { address: hit.range.address, size: hit.range.size } },
          );
        }
      }
    }
    const result = call();
    const tick = (clock.get(timeline) ?? 0) + 1;
    clock.set(timeline, tick);
    // The host's own looks come before everything that it issues later, so they need no history.
    if (timeline === hostTimeline) return result;
    const happened = accesses.map((access) => ({ ...access, tick }));
    const history = this.#history.get(timeline);
    if (history) history.push(...happened);
    else this.#history.set(timeline, happened);
    return result;
  }

  record(event: number, timeline: number): void {
    this.#marks.set(event, new Map(this.#clockOf(timeline)));
  }

  wait(timeline: number, event: number): void {
    merge(this.#clockOf(timeline), this.#marks.get(event) ?? new Map());
  }

  /** The host now knows that everything before the event's mark has ended. */
  hostReached(event: number): void {
    this.wait(hostTimeline, event);
    this.#forgetWhatTheHostKnows();
  }

  hostSynchronized(timeline: number): void {
    merge(this.#clockOf(hostTimeline), this.#clockOf(timeline));
    this.#forgetWhatTheHostKnows();
  }

  /** What the host knows to be over can't collide with anything issued from now on. */
  #forgetWhatTheHostKnows(): void {
    const known = this.#clockOf(hostTimeline);
    for (const [timeline, history] of this.#history) {
      const seen = known.get(timeline) ?? 0;
      this.#history.set(
        timeline,
        history.filter((access) => access.tick > seen),
      );
    }
  }

  #clockOf(timeline: number): VectorClock {
    const known = this.#clocks.get(timeline);
    if (known) return known;
    const clock: VectorClock = new Map();
    this.#clocks.set(timeline, clock);
    return clock;
  }
}
