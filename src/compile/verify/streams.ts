/**
 * Rule `streams`, and the partial order that streams and waits define: which call has completed before another starts.
 * A stream whose first call waits for nothing starts with the step.
 */

import type { Schedule } from "../program/program.js";
import { rejection } from "./plan-error.js";
import { nameCallAt, type Proposal } from "./proposal.js";

/** Devices run few streams at once, and the cost of every rule grows with their number. */
const maxStreams = 64;

/** The index of a call that does not exist. */
export const none = -1;

export interface Order {
  /** Streams are numbered in the order of their first calls. */
  readonly streams: number;
  streamAt(place: number): number;
  /** True if the call at `earlier` has completed before the call at `later` starts; never true of a call and itself. */
  isBefore(earlier: number, later: number): boolean;
}

/** `orderOf` relies on this: every wait is for an earlier call. */
export function requireWaits(proposal: Proposal): void {
  const { calls } = proposal.schedule;
  const seen = new Set<number>();
  for (const [place, { stream, after }] of calls.entries()) {
    if (!Number.isSafeInteger(stream) || stream < 0) {
      const finding = `${nameCallAt(proposal, place)}, is on stream ${stream}; streams are numbered 0, 1, 2, …`;
      throw rejection("streams", finding, { place, stream });
    }
    if (seen.add(stream).size > maxStreams) {
      const finding = `${nameCallAt(proposal, place)}, starts stream ${stream}, and there may be ${maxStreams}`;
      throw rejection("streams", finding, { place, stream, max: maxStreams });
    }
    for (const waited of after) {
      const earlier = waited < place ? calls[waited] : undefined;
      if (earlier !== undefined && earlier.stream !== stream) continue;
      const finding =
        `${nameCallAt(proposal, place)}, on stream ${stream} waits for index ${waited}, which is ` +
        `${earlier === undefined ? "not an earlier call" : "on the same stream"}`;
      throw rejection("streams", finding, { place, stream, waited });
    }
  }
}

/** The step ends with the last call of the main stream: a call it does not wait for could still be running. */
export function requireJoins(proposal: Proposal, order: Order): void {
  const { calls } = proposal.schedule;
  const end = calls.findLastIndex(({ stream }) => stream === 0);
  const lasts = new Map(calls.map(({ stream }, place) => [stream, place]));
  lasts.delete(0);
  for (const [stream, place] of lasts) {
    if (end !== none && order.isBefore(place, end)) continue;
    const finding = `no call of the main stream waits for ${nameCallAt(proposal, place)}, the last of stream ${stream}`;
    throw rejection("streams", finding, { place, stream });
  }
}

/** Vector clocks: for each call, the latest index on each stream that has completed before it. */
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
