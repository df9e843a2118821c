/**
 * From when until when each step buffer is needed, by the clock of the main branch. Calls on side branches run beside it,
 * so where they stand in the schedule doesn't say when they run: what they wait for does, and who waits for them.
 */

import { alignment } from "../../runtime/index.js";
import { alignUp, beat } from "../../units/index.js";
import { accessesOf, type Buffer, type Schedule, type ScheduledCall } from "../program/program.js";

/**
 * The places in the schedule from which and until which a buffer is needed. A half lies between two calls of the main
 * branch: 3.5 is when the one at place 3 has ended and no later one has begun.
 */
export interface Lifetime {
  readonly buffer: Buffer;
  readonly first: number;
  readonly last: number;
}

/** Between two calls of the main branch. */
const half = 0.5;

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
  const ranges = rangesOf(schedule);
  schedule.calls.forEach(({ call }, place) => {
    beat();
    const { first, last } = ranges[place] ?? { first: place, last: place };
    for (const { slice } of accessesOf(call)) {
      const { buffer } = slice;
      if (buffer.storage !== undefined) continue;
      const known = lifetimes.get(buffer);
      if (known === undefined) lifetimes.set(buffer, { first, last });
      else {
        known.first = Math.min(known.first, first);
        known.last = Math.max(known.last, last);
      }
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
      { place: last, bytes: -bytes },
    ];
  });
  // What dies at a place is still there when others are born.
  events.sort((a, b) => a.place - b.place || b.bytes - a.bytes);
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
 * By call, while it may run. A call of the main branch has its own place; one of a side branch runs somewhere behind the
 * last main call that has surely ended before it, and before the first that surely waits for it.
 */
function rangesOf({ calls }: Schedule): readonly Range[] {
  const behind = callsBehind(calls);
  const isMain = (place: number): boolean => calls[place]?.stream === 0;
  const mainBefore = new Int32Array(calls.length).fill(-1);
  const mainBehind = new Int32Array(calls.length).fill(calls.length);
  for (const [place, earlier] of behind.entries()) {
    for (const one of earlier) {
      const main = isMain(one) ? one : (mainBefore[one] ?? -1);
      mainBefore[place] = Math.max(mainBefore[place] ?? -1, main);
    }
  }
  for (let place = calls.length - 1; place >= 0; place--) {
    const main = isMain(place) ? place : (mainBehind[place] ?? calls.length);
    for (const one of behind[place] ?? []) mainBehind[one] = Math.min(mainBehind[one] ?? main, main);
  }
  return calls.map((_, place) =>
    isMain(place)
      ? { first: place, last: place }
      : { first: (mainBefore[place] ?? -1) + half, last: (mainBehind[place] ?? calls.length) - half },
  );
}

/** By call, the places of those that it follows: the one before it on its branch, and what it waits for. */
function callsBehind(calls: readonly ScheduledCall[]): readonly (readonly number[])[] {
  const latest = new Map<number, number>();
  return calls.map(({ stream, after }, place) => {
    const previous = latest.get(stream);
    latest.set(stream, place);
    return previous === undefined ? after : [previous, ...after];
  });
}
