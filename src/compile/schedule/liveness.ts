/**
 * Live ranges of step buffers, in the time of the main stream. A call on a side stream may run at any time between its waits and the
 * calls that wait for it, whatever its index in the schedule.
 */

import { alignment } from "../../runtime/index.js";
import { alignUp, beat } from "../../units/index.js";
import { accessesOf, type Buffer, type Schedule, type ScheduledCall } from "../program/program.js";

/**
 * The first and last schedule index at which a buffer is live. A half lies between two calls of the main stream: 3.5 is after call 3
 * and before the next main call.
 */
export interface Lifetime {
  readonly buffer: Buffer;
  readonly first: number;
  readonly last: number;
}

/** Between two calls of the main stream. */
const half = 0.5;

/** The schedule index with the most live memory, and how much that is. */
export interface Peak {
  readonly place: number;
  readonly bytes: number;
}

/** The size of a buffer in a plan: rounded up so that the next one is aligned. */
export function plannedBytes({ bytes }: Buffer): number {
  return alignUp(bytes, alignment);
}

/** The live ranges of a schedule's step buffers, in the order of first access. */
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

/** The first index with the largest sum of live bytes; index 0 if there are none. */
export function peakOf(lifetimes: readonly Lifetime[]): Peak {
  const events = lifetimes.flatMap(({ buffer, first, last }) => {
    const bytes = plannedBytes(buffer);
    return [
      { place: first, bytes },
      { place: last, bytes: -bytes },
    ];
  });
  // A buffer that dies at an index is still live when others are born there.
  events.sort((a, b) => a.place - b.place || b.bytes - a.bytes);
  let peak: Peak = { place: 0, bytes: 0 };
  let live = 0;
  for (const { place, bytes } of events) {
    live += bytes;
    if (live > peak.bytes) peak = { place, bytes: live };
  }
  return peak;
}

/** No plan can be smaller: the largest sum of live bytes at any index. */
export function lowerBound(lifetimes: readonly Lifetime[]): number {
  return peakOf(lifetimes).bytes;
}

/** Indices from `first` to `last`, both included. */
interface Range {
  readonly first: number;
  readonly last: number;
}

/**
 * When each call may run. A call of the main stream runs at its index; a side call runs between the last main call that it waits for and
 * the first main call that waits for it.
 */
function rangesOf({ calls }: Schedule): readonly Range[] {
  const followed = callsFollowed(calls);
  const isMain = (place: number): boolean => calls[place]?.stream === 0;
  const mainBefore = new Int32Array(calls.length).fill(-1);
  const mainAfter = new Int32Array(calls.length).fill(calls.length);
  for (const [place, earlier] of followed.entries()) {
    for (const one of earlier) {
      const main = isMain(one) ? one : (mainBefore[one] ?? -1);
      mainBefore[place] = Math.max(mainBefore[place] ?? -1, main);
    }
  }
  for (let place = calls.length - 1; place >= 0; place--) {
    const main = isMain(place) ? place : (mainAfter[place] ?? calls.length);
    for (const one of followed[place] ?? []) mainAfter[one] = Math.min(mainAfter[one] ?? main, main);
  }
  return calls.map((_, place) =>
    isMain(place)
      ? { first: place, last: place }
      : { first: (mainBefore[place] ?? -1) + half, last: (mainAfter[place] ?? calls.length) - half },
  );
}

/** By call, the indices of the calls that it follows: the one before it on its stream, and those it waits for. */
function callsFollowed(calls: readonly ScheduledCall[]): readonly (readonly number[])[] {
  const latest = new Map<number, number>();
  return calls.map(({ stream, after }, place) => {
    const previous = latest.get(stream);
    latest.set(stream, place);
    return previous === undefined ? after : [previous, ...after];
  });
}
