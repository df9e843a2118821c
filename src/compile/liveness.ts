/**
 * From when until when each step buffer is needed. Calls on side branches run beside those of the main one, so where
 * they stand in the schedule doesn't say when they run: a range of places that may run side by side counts as one.
 */

import { alignment } from "../runtime/index.js";
import { alignUp } from "../units/index.js";
import { accessesOf, type Buffer, type Schedule, type ScheduledCall } from "./program.js";

/** The places in the schedule of the first and the last call that may run while a buffer is needed. */
export interface Lifetime {
  readonly buffer: Buffer;
  readonly first: number;
  readonly last: number;
}

/** The place where the most memory is needed, and how much. */
export interface Peak {
  readonly place: number;
  readonly bytes: number;
}

/** What a buffer takes in a plan: its bytes, rounded up so that the next one begins aligned. */
export function plannedBytes({ bytes }: Buffer): number {
  return alignUp(bytes, alignment);
}

/** The lifetimes of a schedule's step buffers, in the order in which they are first touched. */
export function lifetimesOf(schedule: Schedule): readonly Lifetime[] {
  const lifetimes = new Map<Buffer, { first: number; last: number }>();
  const ranges = concurrentRanges(schedule);
  schedule.calls.forEach(({ call }, place) => {
    const { first, last } = ranges[place] ?? { first: place, last: place };
    for (const { part } of accessesOf(call)) {
      const { buffer } = part;
      if (buffer.storage !== undefined) continue;
      const known = lifetimes.get(buffer);
      if (known === undefined) lifetimes.set(buffer, { first, last });
      else known.last = last;
    }
  });
  return Array.from(lifetimes, ([buffer, lifetime]) => ({ buffer, ...lifetime }));
}

/** Where the sum of live bytes is largest: the first such place, or place 0 of no bytes at all. */
export function peakOf(lifetimes: readonly Lifetime[]): Peak {
  const events = lifetimes.flatMap(({ buffer, first, last }) => {
    const bytes = plannedBytes(buffer);
    return [
      { place: first, bytes },
      { place: last + 1, bytes: -bytes },
    ];
  });
  // What dies before a place makes room before what is born there takes it.
  events.sort((a, b) => a.place - b.place || a.bytes - b.bytes);
  let peak: Peak = { place: 0, bytes: 0 };
  let live = 0;
  for (const { place, bytes } of events) {
    live += bytes;
    if (live > peak.bytes) peak = { place, bytes: live };
  }
  return peak;
}

/** No plan can take less: the largest sum of live bytes at any place. */
export function lowerBound(lifetimes: readonly Lifetime[]): number {
  return peakOf(lifetimes).bytes;
}

/** Places from `first` to `last`, both included. */
interface Range {
  readonly first: number;
  readonly last: number;
}

/**
 * For each place the range of places that its call may run beside, itself included: any two calls of which the schedule
 * doesn't say that one ends before the other begins are in one range. A range begins behind the last call of the main
 * branch that each of its side calls waits for, which may stand well before the first of them, and ends before the call of
 * the main branch that has waited for them all.
 */
function concurrentRanges({ calls }: Schedule): readonly Range[] {
  const order = new CallOrder();
  const found: Range[] = [];
  let start: number | undefined;
  const endAt = (last: number): void => {
    let first = start ?? last;
    // A side call that waits for nothing from an earlier range's join on may run beside that range, too.
    for (let before = found.at(-1); before !== undefined && first <= before.last + 1; before = found.at(-1)) {
      first = Math.min(first, before.first);
      found.pop();
    }
    found.push({ first, last });
    start = undefined;
  };
  calls.forEach((scheduled, place) => {
    order.add(scheduled, place);
    if (scheduled.branch !== 0) start = Math.min(start ?? place, order.mainBefore(place) + 1);
    else if (start !== undefined && order.tryJoin(place)) endAt(place - 1);
  });
  if (start !== undefined) endAt(calls.length - 1);

  const ranges: Range[] = calls.map((_, place) => ({ first: place, last: place }));
  for (const range of found) ranges.fill(range, range.first, range.last + 1);
  return ranges;
}

/** The last place of each other branch that is known to have ended. */
type Clock = ReadonlyMap<number, number>;

const nothingKnown: Clock = new Map();

/** Which calls of other branches have ended before a call begins: it waits for them, or for one that comes after them. */
class CallOrder {
  readonly #branches: number[] = [];
  readonly #clocks: Clock[] = [];
  /** The clock of each branch's last call so far. */
  readonly #latest = new Map<number, Clock>();
  /** The last call of each side branch that the main one has not waited for. */
  readonly #unjoined = new Map<number, number>();

  add({ branch, after }: ScheduledCall, place: number): void {
    let clock = this.#latest.get(branch) ?? nothingKnown;
    if (after.length > 0) {
      const known = new Map(clock);
      const learn = (other: number, ended: number): void => {
        if (other !== branch && ended > (known.get(other) ?? -1)) known.set(other, ended);
      };
      for (const awaited of after) {
        learn(this.#branches[awaited] ?? branch, awaited);
        for (const [other, ended] of this.#clocks[awaited] ?? nothingKnown) learn(other, ended);
      }
      clock = known;
    }
    this.#branches.push(branch);
    this.#clocks.push(clock);
    this.#latest.set(branch, clock);
    if (branch !== 0) this.#unjoined.set(branch, place);
  }

  /** The last call of the main branch that has ended before this side call begins, or -1. */
  mainBefore(place: number): number {
    return this.#clocks[place]?.get(0) ?? -1;
  }

  /** Joins the side branches at the newest call of the main one, if every side call so far has ended before it begins. */
  tryJoin(place: number): boolean {
    const clock = this.#clocks[place] ?? nothingKnown;
    for (const [branch, latest] of this.#unjoined) {
      if ((clock.get(branch) ?? -1) < latest) return false;
    }
    // From here on the main branch stands for them: clocks grow with the branches that are open, not with all there were.
    this.#unjoined.clear();
    this.#clocks[place] = nothingKnown;
    this.#latest.set(0, nothingKnown);
    return true;
  }
}
