/**
 * Assigns calls to streams. The order of the program stays; calls whose results are not needed soon move to side streams and overlap
 * with the critical path. In a backward pass the critical path is the gradients of inputs; weight gradients are read at the end.
 */

import {
  type Call,
  isLaunched,
  type Node,
  Program,
  type Schedule,
  type ScheduledCall,
} from "../program/program.js";

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
  const sideCalls: { readonly index: number; readonly before: number }[] = [];
  let awaited = 0;

  const scheduled = calls.map((call, index): ScheduledCall => {
    const needed = links[index]?.predecessors ?? [];
    if (isOnSideStream[index]) {
      sideCalls.push({ index, before: mains.length });
      const earliest = mains[mains.length - 1 - lag];
      const awaits = earliest === undefined ? needed : [...needed, earliest];
      return { call, ...waits.moveToSideStream(index, awaits) };
    }
    const due: number[] = [];
    for (let next = sideCalls[awaited]; next !== undefined; next = sideCalls[++awaited]) {
      if (next.before + lag > mains.length && index < calls.length - 1) break;
      due.push(next.index);
    }
    mains.push(index);
    return { call, stream: 0, after: waits.follow(index, 0, [...needed, ...due]) };
  });
  return { calls: scheduled, isMainFirst };
}

/** The indices of the calls that a call depends on, and of those that depend on it. */
interface Links {
  readonly predecessors: readonly number[];
  readonly successors: readonly number[];
}

/** Calls that access the same bytes keep the program's order, unless both only read. */
function linksBetween(calls: readonly Call[]): readonly Links[] {
  const program = new Program(calls);
  const { nodes } = program;
  const indices = new Map(nodes.map((node, index) => [node, index]));
  const indicesOf = (linked: ReadonlySet<Node>): number[] =>
    Array.from(linked, (node) => indices.get(node) ?? 0);
  return nodes.map((node) => ({
    predecessors: indicesOf(program.producersOf(node)),
    successors: indicesOf(program.consumersOf(node)),
  }));
}

/**
 * A call moves to a side stream under two conditions. Its slack on the critical path is at least `slack`, and none of
 * the next `slack` main-stream calls needs its result. Every call counts as one: calls that gain from overlap are
 * small.
 */
function chooseSideStream(
  calls: readonly Call[],
  links: readonly Links[],
  slack: number,
): readonly boolean[] {
  const slackOf = slacksOf(links);
  const isOnSideStream: boolean[] = calls.map(() => false);
  // By call: the first main call that needs it, directly or through side calls, as a number counted from the end. For a
  // main call: the call itself.
  const neededAt = new Int32Array(calls.length);
  let mains = 0;
  for (const [index, call] of [...calls.entries()].reverse()) {
    const soonest = maxOf(links[index]?.successors ?? [], (later) => neededAt[later] ?? 0);
    // The last call stays: there the main stream has joined all others.
    // Fills and copies run on the runtime's own stream only.
    // A rematerialised call would run early, and hold its results longer.
    const mayGo = index < calls.length - 1 && isLaunched(call) && !call.isRematerialized;
    const canGo = mayGo && (slackOf[index] ?? 0) >= Math.max(1, slack);
    isOnSideStream[index] = canGo && mains - soonest >= slack;
    neededAt[index] = isOnSideStream[index] ? soonest : ++mains;
  }
  return isOnSideStream;
}

/** The slack of each call: how much shorter the longest chain through it is than the critical path. */
function slacksOf(links: readonly Links[]): readonly number[] {
  const [depth, height] = [new Int32Array(links.length), new Int32Array(links.length)];
  for (const [index, link] of links.entries())
    depth[index] = maxOf(link.predecessors, (other) => 1 + (depth[other] ?? 0));
  for (const [index, link] of [...links.entries()].reverse())
    height[index] = maxOf(link.successors, (other) => 1 + (height[other] ?? 0));
  const lengths = links.map((_, index) => (depth[index] ?? 0) + (height[index] ?? 0));
  const longest = maxOf(lengths, (length) => length);
  return lengths.map((length) => longest - length);
}

function maxOf(indices: readonly number[], measure: (index: number) => number): number {
  return indices.reduce((max, index) => Math.max(max, measure(index)), 0);
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

  /** Moves the call to the stream whose last call it depends on, or else to the stream that has been idle longest. */
  moveToSideStream(index: number, needed: readonly number[]): Pick<ScheduledCall, "stream" | "after"> {
    const followed = needed
      .map((earlier) => this.#streamOf[earlier] ?? 0)
      .find((stream, nth) => stream !== 0 && this.#latest[stream] === needed[nth]);
    const sides = Array.from(this.#latest.subarray(1));
    const stream = followed ?? 1 + sides.indexOf(Math.min(...sides));
    return { stream, after: this.follow(index, stream, needed) };
  }

  follow(index: number, stream: number, needed: readonly number[]): readonly number[] {
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
    clock[stream] = index;
    this.#clocks.push(clock);
    this.#streamOf.push(stream);
    this.#latest[stream] = index;
    return after.reverse();
  }
}
