/**
 * Rule `streams`, and the partial order that streams and waits define: which call has completed before another starts.
 * A stream whose first call waits for nothing starts with the step.
 */

import type { Schedule } from "../program/program.js";
import { rejection } from "./plan-error.js";
import { nameCallAt, type Proposal } from "./proposal.js";

/** Devices run few streams at once, and the cost of every rule grows with their number. */
const maxStreams = 64;

/** The position of a call that does not exist. */
export const none = -1;

export interface Order {
  /** Streams are numbered in the order of their first calls. */
  readonly streams: number;
  streamAt(position: number): number;
  /** True if the call at `earlier` has completed before the call at `later` starts; never true of a call and itself. */
  isBefore(earlier: number, later: number): boolean;
}

/** Rejects a wait for a later call. `orderOf` relies on this rule. */
export function requireWaits(proposal: Proposal): void {
  const { calls } = proposal.schedule;
  const seen = new Set<number>();
  for (const [position, { stream, after }] of calls.entries()) {
    if (!Number.isSafeInteger(stream) || stream < 0) {
      const finding = `${nameCallAt(proposal, position)}, is on stream ${stream}; streams are numbered 0, 1, 2, …`;
      throw rejection("streams", finding, { position, stream });
    }
    if (seen.add(stream).size > maxStreams) {
      const finding = `${nameCallAt(proposal, position)}, starts stream ${stream}, but a schedule has at most ${maxStreams} streams`;
      throw rejection("streams", finding, { position, stream, max: maxStreams });
    }
    for (const waited of after) {
      const earlier = waited < position ? calls[waited] : undefined;
      if (earlier !== undefined && earlier.stream !== stream) continue;
      const finding =
        `${nameCallAt(proposal, position)}, on stream ${stream} waits for index ${waited}, which is ` +
        `${earlier === undefined ? "not an earlier call" : "on the same stream"}`;
      throw rejection("streams", finding, { position, stream, waited });
    }
  }
}

/**
 * Rejects a call that the main stream's last call does not wait for: the call could still be running when the step
 * ends.
 */
export function requireJoins(proposal: Proposal, order: Order): void {
  const { calls } = proposal.schedule;
  const end = calls.findLastIndex(({ stream }) => stream === 0);
  const lasts = new Map(calls.map(({ stream }, position) => [stream, position]));
  lasts.delete(0);
  for (const [stream, position] of lasts) {
    if (end !== none && order.isBefore(position, end)) continue;
    const finding = `no call of the main stream waits for ${nameCallAt(proposal, position)}, the last of stream ${stream}`;
    throw rejection("streams", finding, { position, stream });
  }
}

/** Vector clocks: for each call, the latest position on each stream that has completed before it. */
export function orderOf({ calls }: Schedule): Order {
  const numbers = new Map<number, number>();
  for (const { stream } of calls) if (!numbers.has(stream)) numbers.set(stream, numbers.size);
  const streams = numbers.size;
  const streamAt = Int32Array.from(calls, ({ stream }) => numbers.get(stream) ?? none);
  const clocks = new Int32Array(calls.length * streams).fill(none);
  const latest = new Int32Array(streams).fill(none);

  for (const [position, { after }] of calls.entries()) {
    const clock = clocks.subarray(position * streams, (position + 1) * streams);
    const stream = streamAt[position] ?? none;
    const previous = latest[stream] ?? none;
    for (const ended of previous === none ? after : [previous, ...after]) {
      for (let other = 0; other < streams; other++) {
        clock[other] = Math.max(clock[other] ?? none, clocks[ended * streams + other] ?? none);
      }
      const endedStream = streamAt[ended] ?? none;
      clock[endedStream] = Math.max(clock[endedStream] ?? none, ended);
    }
    latest[stream] = position;
  }

  return {
    streams,
    streamAt: (position) => streamAt[position] ?? none,
    isBefore: (earlier, later) => earlier <= (clocks[later * streams + (streamAt[earlier] ?? none)] ?? none),
  };
}
