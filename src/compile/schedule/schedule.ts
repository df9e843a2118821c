/**
 * Assigns calls to streams. The order of the program stays; calls whose results are not needed soon move to side streams and overlap
 * with the critical path. In a backward pass the critical path is the gradients of inputs; weight gradients are read at the end.
 */

import { DependencyGraph } from "../program/dependency-graph.js";
import { type Call, isLaunched, type Schedule, type ScheduledCall } from "../program/program.js";

export interface ScheduleOptions {
  /** The number of side streams; 0: calls run one after the other. */
  readonly streams: number;
  /** A side call overlaps with at most this many main-stream calls before and after it; its operands live that much longer. */
  readonly lag: number;
  /** The slack, in calls, that a call needs to move to a side stream. Default: `lag`. */
  readonly slack?: number;
  /** Gives the main stream priority over side streams. Default: false. */
  readonly isMainFirst?: boolean;
}

export function scheduleCalls(calls: readonly Call[], options: ScheduleOptions): Schedule {
  const { streams, lag, slack = lag, isMainFirst = false } = options;
  if (streams === 0) return { calls: calls.map((call) => ({ call, stream: 0, after: [] })) };
  const links = linksBetween(calls);
  const isOnSideStream = chooseSideStream(calls, links, slack);
  const waits = new Waits(streams);
  const mains: number[] = [];
  /** Side calls that the main stream may have to wait for, and how many main calls came before them. */
  const sideCalls: { readonly place: number; readonly before: number }[] = [];
  let awaited = 0;

  const scheduled = calls.map((call, place): ScheduledCall => {
    const needed = links[place]?.before ?? [];
    if (isOnSideStream[place]) {
      sideCalls.push({ place, before: mains.length });
      const earliest = mains[mains.length - 1 - lag];
      const awaits = earliest === undefined ? needed : [...needed, earliest];
      return { call, ...waits.moveToSideStream(place, awaits) };
    }
    const due: number[] = [];
    for (let next = sideCalls[awaited]; next !== undefined; next = sideCalls[++awaited]) {
      if (next.before + lag > mains.length && place < calls.length - 1) break;
      due.push(next.place);
    }
    mains.push(place);
    return { call, stream: 0, after: waits.follow(place, 0, [...needed, ...due]) };
  });
  return { calls: scheduled, isMainFirst };
}

/** The indices of the calls that a call depends on, and of those that depend on it. */
interface Links {
  readonly before: readonly number[];
  readonly behind: readonly number[];
}

/** Calls that access the same bytes keep the program's order, unless both only read. */
function linksBetween(calls: readonly Call[]): readonly Links[] {
  const order = new DependencyGraph();
  const nodes = calls.map((call) => order.add(call).node);
  // Nothing is fused or moved here, so a node's position is its call's index.
  const placesOf = (linked: (typeof nodes)[number]["predecessors"]): number[] =>
    Array.from(linked, ({ position }) => position);
  return nodes.map(({ predecessors: before, successors: behind }) => ({
    before: placesOf(before),
    behind: placesOf(behind),
  }));
}

/**
 * A call moves to a side stream only if (1) its slack on the critical path is at least `slack`, and (2) none of the next `slack`
 * main-stream calls needs its result. Every call counts as one: calls that gain from overlap are small.
 */
function chooseSideStream(
  calls: readonly Call[],
  links: readonly Links[],
  slack: number,
): readonly boolean[] {
  const slackOf = slacksOf(links);
  const isOnSideStream: boolean[] = calls.map(() => false);
  // The first main call, counted from the end, that needs a call or a side call that depends on it; for a main call, the call itself.
  const neededAt = new Int32Array(calls.length);
  let mains = 0;
  for (const [place, call] of [...calls.entries()].reverse()) {
    const soonest = maxOf(links[place]?.behind ?? [], (later) => neededAt[later] ?? 0);
    // The last call stays: there the main stream has joined all others.
    // Fills and copies run on the runtime's own stream only.
    const canGo = place < calls.length - 1 && isLaunched(call) && (slackOf[place] ?? 0) >= Math.max(1, slack);
    isOnSideStream[place] = canGo && mains - soonest >= slack;
    neededAt[place] = isOnSideStream[place] ? soonest : ++mains;
  }
  return isOnSideStream;
}

/** The slack of each call: how much shorter the longest chain through it is than the critical path. */
function slacksOf(links: readonly Links[]): readonly number[] {
  const [before, behind] = [new Int32Array(links.length), new Int32Array(links.length)];
  for (const [place, link] of links.entries())
    before[place] = maxOf(link.before, (one) => 1 + (before[one] ?? 0));
  for (const [place, link] of [...links.entries()].reverse())
    behind[place] = maxOf(link.behind, (one) => 1 + (behind[one] ?? 0));
  const lengths = links.map((_, place) => (before[place] ?? 0) + (behind[place] ?? 0));
  const longest = maxOf(lengths, (length) => length);
  return lengths.map((length) => longest - length);
}

function maxOf(places: readonly number[], measure: (place: number) => number): number {
  return places.reduce((max, place) => Math.max(max, measure(place)), 0);
}

const none = -1;

/** Computes the waits of calls: of their dependencies, only those that no other wait implies. */
class Waits {
  /** By call: a vector clock with the latest index of each stream that has completed when the call has, itself included. */
  readonly #clocks: Int32Array[] = [];
  readonly #streamOf: number[] = [];
  readonly #latest: Int32Array;

  constructor(sideStreams: number) {
    this.#latest = new Int32Array(sideStreams + 1).fill(none);
  }

  /** On the stream whose last call it depends on, or else on the stream that has been idle longest. */
  moveToSideStream(place: number, needed: readonly number[]): Pick<ScheduledCall, "stream" | "after"> {
    const followed = needed
      .map((earlier) => this.#streamOf[earlier] ?? 0)
      .find((stream, index) => stream !== 0 && this.#latest[stream] === needed[index]);
    const sides = Array.from(this.#latest.subarray(1));
    const stream = followed ?? 1 + sides.indexOf(Math.min(...sides));
    return { stream, after: this.follow(place, stream, needed) };
  }

  follow(place: number, stream: number, needed: readonly number[]): readonly number[] {
    const previous = this.#clocks[this.#latest[stream] ?? none];
    const clock = previous?.slice() ?? new Int32Array(this.#latest.length).fill(none);
    const after: number[] = [];
    // Latest first: a wait implies only earlier calls.
    for (const earlier of [...needed].sort((a, b) => b - a)) {
      if (earlier <= (clock[this.#streamOf[earlier] ?? 0] ?? none)) continue;
      after.push(earlier);
      this.#clocks[earlier]?.forEach((ended, other) => {
        clock[other] = Math.max(clock[other] ?? none, ended);
      });
    }
    clock[stream] = place;
    this.#clocks.push(clock);
    this.#streamOf.push(stream);
    this.#latest[stream] = place;
    return after.reverse();
  }
}
