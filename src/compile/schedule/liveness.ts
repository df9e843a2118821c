/**
 * Live ranges of step buffers, in the time of the main stream. A call on a side stream may run at any time after its
 * waits and before the calls that wait for it. Its position in the schedule does not matter.
 */

import { alignment } from "../../runtime/index.js";
import { alignUp, beat } from "../../units/index.js";
import { accessesOf, type Buffer, type Schedule, type ScheduledCall } from "../program/program.js";

/**
 * The first and last schedule position at which a buffer is live. A half is between two calls of the main stream: 3.5 is after call 3
 * and before the next main call.
 */
export interface Lifetime {
  readonly buffer: Buffer;
  readonly first: number;
  readonly last: number;
}

/** Between two calls of the main stream. */
const half = 0.5;

/** The schedule position with the most live memory, and the live bytes there. */
export interface Peak {
  readonly position: number;
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
  schedule.calls.forEach(({ call }, position) => {
    beat();
    const { first, last } = ranges[position] ?? { first: position, last: position };
    for (const { slice } of accessesOf(call)) {
      const { buffer } = slice;
      if (buffer.storage !== undefined) continue;
      const lifetime = lifetimes.get(buffer);
      if (lifetime === undefined) lifetimes.set(buffer, { first, last });
      else {
        lifetime.first = Math.min(lifetime.first, first);
        lifetime.last = Math.max(lifetime.last, last);
      }
    }
  });
  return Array.from(lifetimes, ([buffer, range]) => ({ buffer, ...range }));
}

/** The first position with the largest sum of live bytes; 0 if no buffer is live. */
export function peakOf(lifetimes: readonly Lifetime[]): Peak {
  const events = lifetimes.flatMap(({ buffer, first, last }) => {
    const bytes = plannedBytes(buffer);
    return [
      { position: first, bytes },
      { position: last, bytes: -bytes },
    ];
  });
  // A buffer that dies at a position is still live when others are born there.
  events.sort((a, b) => a.position - b.position || b.bytes - a.bytes);
  let peak: Peak = { position: 0, bytes: 0 };
  let live = 0;
  for (const { position, bytes } of events) {
    live += bytes;
    if (live > peak.bytes) peak = { position, bytes: live };
  }
  return peak;
}

/** The largest sum of live bytes at any position; no plan can be smaller. */
export function lowerBound(lifetimes: readonly Lifetime[]): number {
  return peakOf(lifetimes).bytes;
}

/** Positions from `first` to `last`, both included. */
interface Range {
  readonly first: number;
  readonly last: number;
}

/**
 * The positions at which each call may run. A call of the main stream runs at its position. A side call runs between
 * the last main call that it waits for and the first main call that waits for it.
 */
function rangesOf({ calls }: Schedule): readonly Range[] {
  const followed = callsFollowed(calls);
  const isMain = (position: number): boolean => calls[position]?.stream === 0;
  const mainBefore = new Int32Array(calls.length).fill(-1);
  const mainAfter = new Int32Array(calls.length).fill(calls.length);
  for (const [position, earlier] of followed.entries()) {
    for (const predecessor of earlier) {
      const main = isMain(predecessor) ? predecessor : (mainBefore[predecessor] ?? -1);
      mainBefore[position] = Math.max(mainBefore[position] ?? -1, main);
    }
  }
  for (let position = calls.length - 1; position >= 0; position--) {
    const main = isMain(position) ? position : (mainAfter[position] ?? calls.length);
    for (const predecessor of followed[position] ?? [])
      mainAfter[predecessor] = Math.min(mainAfter[predecessor] ?? main, main);
  }
  return calls.map((_, position) =>
    isMain(position)
      ? { first: position, last: position }
      : { first: (mainBefore[position] ?? -1) + half, last: (mainAfter[position] ?? calls.length) - half },
  );
}

/** By call, the positions of the calls that it follows: its predecessor on its stream, and the calls that it waits for. */
function callsFollowed(calls: readonly ScheduledCall[]): readonly (readonly number[])[] {
  const latest = new Map<number, number>();
  return calls.map(({ stream, after }, position) => {
    const previous = latest.get(stream);
    latest.set(stream, position);
    return previous === undefined ? after : [previous, ...after];
  });
}
