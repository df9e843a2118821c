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
  /** True for collectives: they run on a stream of their own, next to the work that does not need them. Default: for no call. */
  readonly isCollective?: (call: Call) => boolean;
}

export function scheduleCalls(calls: readonly Call[], options: ScheduleOptions): Schedule {
  const { streams, lag, slack = lag, isMainFirst = false, isCollective } = options;
  const hasCollectives = isCollective !== undefined && calls.some(isCollective);
  if (streams === 0 && !hasCollectives)
    return { calls: calls.map((call) => ({ call, stream: 0, after: [] })) };
  const links = linksBetween(calls);
  const isExchange = hasCollectives ? chooseExchanges(calls, links, isCollective) : [];
  const isOnSideStream = chooseSideStream(calls, links, { slack, streams, isExchange });
  const waits = new Waits(streams);
  let lastExchange: number | undefined;
  const mains: number[] = [];
  /** Side calls that the main stream may have to wait for, and how many main calls came before them. */
  const sideCalls: { readonly index: number; readonly before: number }[] = [];
  let awaited = 0;

  const scheduled = calls.map((call, index): ScheduledCall => {
    const needed = links[index]?.predecessors ?? [];
    if (isExchange[index]) {
      lastExchange = index;
      return { call, ...waits.moveToExchanges(index, needed) };
    }
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
    if (lastExchange !== undefined && index === calls.length - 1) due.push(lastExchange);
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
 * The calls of the stream of collectives: these, and the calls between them that depend on nothing else, such as the sum of what other ranks have
 * sent. One stream gives the collectives of all ranks one order.
 */
function chooseExchanges(
  calls: readonly Call[],
  links: readonly Links[],
  isCollective: (call: Call) => boolean,
): readonly boolean[] {
  const dependsOnlyOnThem: boolean[] = [];
  for (const [index, call] of calls.entries()) {
    const predecessors = links[index]?.predecessors ?? [];
    dependsOnlyOnThem[index] =
      isCollective(call) ||
      (isLaunched(call) &&
        !call.isRematerialized &&
        predecessors.length > 0 &&
        predecessors.every((earlier) => dependsOnlyOnThem[earlier]));
  }
  const isExchange: boolean[] = calls.map(() => false);
  for (const [index, call] of [...calls.entries()].reverse()) {
    // The last call stays: there the main stream has joined all others.
    if (index === calls.length - 1 || !dependsOnlyOnThem[index]) continue;
    const successors = links[index]?.successors ?? [];
    isExchange[index] =
      isCollective(call) || (successors.length > 0 && successors.every((later) => isExchange[later]));
  }
  return isExchange;
}

/**
 * A call moves to a side stream under two conditions. Its slack on the critical path is at least `slack`, and none of
 * the next `slack` main-stream calls needs its result. Every call counts as one: calls that gain from overlap are
 * small.
 */
function chooseSideStream(
  calls: readonly Call[],
  links: readonly Links[],
  {
    slack,
    streams,
    isExchange,
  }: { readonly slack: number; readonly streams: number; readonly isExchange: readonly boolean[] },
): readonly boolean[] {
  if (streams === 0) return calls.map(() => false);
  const slackOf = slacksOf(links);
  const isOnSideStream: boolean[] = calls.map(() => false);
  // By call: the first main call that needs it, directly or through side calls, as a number counted from the end. For a
  // main call: the call itself.
  const neededAt = new Int32Array(calls.length);
  let mains = 0;
  for (const [index, call] of [...calls.entries()].reverse()) {
    const soonest = maxOf(links[index]?.successors ?? [], (later) => neededAt[later] ?? 0);
    if (isExchange[index]) {
      neededAt[index] = soonest;
      continue;
    }
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
  /** The stream of collectives: the one after the side streams. */
  readonly #exchanges: number;

  constructor(sideStreams: number) {
    this.#exchanges = sideStreams + 1;
    this.#latest = new Int32Array(sideStreams + 2).fill(none);
  }

  moveToExchanges(index: number, needed: readonly number[]): Pick<ScheduledCall, "stream" | "after"> {
    return { stream: this.#exchanges, after: this.follow(index, this.#exchanges, needed) };
  }

  /** Moves the call to the stream whose last call it depends on, or else to the stream that has been idle longest. */
  moveToSideStream(index: number, needed: readonly number[]): Pick<ScheduledCall, "stream" | "after"> {
    const followed = needed
      .map((earlier) => this.#streamOf[earlier] ?? 0)
      .find(
        (stream, nth) => stream !== 0 && stream !== this.#exchanges && this.#latest[stream] === needed[nth],
      );
    const sides = Array.from(this.#latest.subarray(1, this.#exchanges));
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
