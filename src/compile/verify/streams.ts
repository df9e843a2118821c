/**
 * The rule `branches`, and the order that branches and waits leave: which call has surely ended when another begins.
 * A branch whose first call waits for nothing begins with the step itself.
 */

import type { Schedule } from "../program/program.js";
import { rejection } from "./plan-error.js";
import { nameCallAt, type Proposal } from "./proposal.js";

/** Devices run few branches side by side, and every rule asks about each of them. */
const maxStreams = 64;

/** Stands for the place of a call that is not there. */
export const none = -1;

export interface Order {
  /** Branches are counted in the order in which they begin. */
  readonly streams: number;
  streamAt(place: number): number;
  /** Whether the call at one place has surely ended when the one at the other begins; never true of one and the same. */
  isBefore(earlier: number, later: number): boolean;
}

/** Holds for each call by itself; the order of a schedule is known once this has held. */
export function requireWaits(proposal: Proposal): void {
  const { calls } = proposal.schedule;
  const seen = new Set<number>();
  for (const [place, { stream, after }] of calls.entries()) {
    if (!Number.isSafeInteger(stream) || stream < 0) {
      const finding = `${nameCallAt(proposal, place)}, is on branch ${stream}; they are counted 0, 1, 2, …`;
      throw rejection("streams", finding, { place, stream });
    }
    if (seen.add(stream).size > maxStreams) {
      const finding = `${nameCallAt(proposal, place)}, begins branch ${stream}, and there may be ${maxStreams}`;
      throw rejection("streams", finding, { place, stream, most: maxStreams });
    }
    for (const waited of after) {
      const earlier = waited < place ? calls[waited] : undefined;
      if (earlier !== undefined && earlier.stream !== stream) continue;
      const finding =
        `${nameCallAt(proposal, place)}, on branch ${stream} waits for place ${waited}, which is ` +
        `${earlier === undefined ? "not an earlier one" : "on the same branch"}`;
      throw rejection("streams", finding, { place, stream, waited });
    }
  }
}

/** The step ends with the last call of the main branch: whatever that one does not wait for would still be running. */
export function requireJoins(proposal: Proposal, order: Order): void {
  const { calls } = proposal.schedule;
  const end = calls.findLastIndex(({ stream }) => stream === 0);
  const lasts = new Map(calls.map(({ stream }, place) => [stream, place]));
  lasts.delete(0);
  for (const [stream, place] of lasts) {
    if (end !== none && order.isBefore(place, end)) continue;
    const finding = `no call of the main branch waits for ${nameCallAt(proposal, place)}, the last of branch ${stream}`;
    throw rejection("streams", finding, { place, stream });
  }
}

/** Vector clocks: for each call, the latest place of each branch that has ended before it. */
export function orderOf({ calls }: Schedule): Order {
  const numbers = new Map<number, number>();
  for (const { stream } of calls) if (!numbers.has(stream)) numbers.set(stream, numbers.size);
  const streams = numbers.size;
  const streamAt = Int32Array.from(calls, ({ stream }) => numbers.get(stream) ?? none);
  const clocks = new Int32Array(calls.length * streams).fill(none);
  const latest = new Int32Array(streams).fill(none);

  for (const [place, { after }] of calls.entries()) {
    const clock = clocks.subarray(place * streams, (place + 1) * streams);
    const stream = streamAt[place] ?? none;
    const previous = latest[stream] ?? none;
    for (const ended of previous === none ? after : [previous, ...after]) {
      for (let other = 0; other < streams; other++) {
        clock[other] = Math.max(clock[other] ?? none, clocks[ended * streams + other] ?? none);
      }
      const itsStream = streamAt[ended] ?? none;
      clock[itsStream] = Math.max(clock[itsStream] ?? none, ended);
    }
    latest[stream] = place;
  }

  return {
    streams,
    streamAt: (place) => streamAt[place] ?? none,
    isBefore: (earlier, later) => earlier <= (clocks[later * streams + (streamAt[earlier] ?? none)] ?? none),
  };
}
