/**
 * When calls run. They keep the order of the program; what nobody needs soon goes aside, to run beside the calls that
 * everything waits for. In a backward pass those are the gradients of inputs, one behind the other; the gradients of
 * weights are read at the very end.
 */

import { DependencyGraph } from "../program/dependency-graph.js";
import { type Call, isLaunched, type Schedule, type ScheduledCall } from "../program/program.js";

export interface ScheduleOptions {
  /** How many side branches there may be; with none, calls run one after the other. */
  readonly streams: number;
  /** What is aside runs beside so many calls of the main branch before and behind it at the most: what it touches is held that long. */
  readonly lag: number;
  /** A call goes aside if it can wait for so many calls: as many as it may run beside, unless given. */
  readonly slack?: number;
  /** Do calls of the main branch begin before others, where there is not room for all? No unless given. */
  readonly isMainFirst?: boolean;
}

export function scheduleCalls(calls: readonly Call[], options: ScheduleOptions): Schedule {
  const { streams, lag, slack = lag, isMainFirst = false } = options;
  if (streams === 0) return { calls: calls.map((call) => ({ call, stream: 0, after: [] })) };
  const links = linksBetween(calls);
  const isOnSideStream = chooseSideStream(calls, links, slack);
  const waits = new Waits(streams);
  const mains: number[] = [];
  /** What has gone aside and may have to be waited for, and how many calls of the main branch stood before it. */
  const aside: { readonly place: number; readonly before: number }[] = [];
  let awaited = 0;

  const scheduled = calls.map((call, place): ScheduledCall => {
    const needed = links[place]?.before ?? [];
    if (isOnSideStream[place]) {
      aside.push({ place, before: mains.length });
      const earliest = mains[mains.length - 1 - lag];
      const awaits = earliest === undefined ? needed : [...needed, earliest];
      return { call, ...waits.moveToSideStream(place, awaits) };
    }
    const due: number[] = [];
    for (let next = aside[awaited]; next !== undefined; next = aside[++awaited]) {
      if (next.before + lag > mains.length && place < calls.length - 1) break;
      due.push(next.place);
    }
    mains.push(place);
    return { call, stream: 0, after: waits.follow(place, 0, [...needed, ...due]) };
  });
  return { calls: scheduled, isMainFirst };
}

/** The places of the calls that have to run before a call, and of those that have to run behind it. */
interface Links {
  readonly before: readonly number[];
  readonly behind: readonly number[];
}

/** Whoever meets the same bytes keeps the program's order, unless both only read. */
function linksBetween(calls: readonly Call[]): readonly Links[] {
  const order = new DependencyGraph();
  const nodes = calls.map((call) => order.add(call).node);
  // Nothing is joined here, so a node's position is its call's place.
  const placesOf = (linked: (typeof nodes)[number]["predecessors"]): number[] =>
    Array.from(linked, ({ position }) => position);
  return nodes.map(({ predecessors: before, successors: behind }) => ({
    before: placesOf(before),
    behind: placesOf(behind),
  }));
}

/**
 * What goes aside has to be able to wait in two ways. It may be late by so many calls without making any chain of calls
 * that wait for each other longer than the longest; so that chain itself stays. And so many calls of the main branch that
 * stand behind it can do without it; so nobody stops for it at once. Calls of any cost count alike: what gains from
 * running beside others is small.
 */
function chooseSideStream(
  calls: readonly Call[],
  links: readonly Links[],
  slack: number,
): readonly boolean[] {
  const spare = spareOf(links);
  const isOnSideStream: boolean[] = calls.map(() => false);
  // The main call, counted from the end, that first needs a call or what is made of it aside; the call itself if it is one.
  const neededAt = new Int32Array(calls.length);
  let mains = 0;
  for (const [place, call] of [...calls.entries()].reverse()) {
    const soonest = maxOf(links[place]?.behind ?? [], (later) => neededAt[later] ?? 0);
    // The last call stays: it is where the main branch has waited for everything.
    // Fills and copies are sent on the runtime's own stream only.
    const canGo = place < calls.length - 1 && isLaunched(call) && (spare[place] ?? 0) >= Math.max(1, slack);
    isOnSideStream[place] = canGo && mains - soonest >= slack;
    neededAt[place] = isOnSideStream[place] ? soonest : ++mains;
  }
  return isOnSideStream;
}

/** By how many calls the longest chain through each call is shorter than the longest of all. */
function spareOf(links: readonly Links[]): readonly number[] {
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
  return places.reduce((most, place) => Math.max(most, measure(place)), 0);
}

const none = -1;

/** Gives calls their waits: of what a call needs, just that which has not surely ended by what it waits for besides. */
class Waits {
  /** By call: the latest place of each branch that has ended when the call has, itself included. */
  readonly #clocks: Int32Array[] = [];
  readonly #streamOf: number[] = [];
  readonly #latest: Int32Array;

  constructor(sideStreams: number) {
    this.#latest = new Int32Array(sideStreams + 1).fill(none);
  }

  /** Behind something that it needs and that stands last on its branch, or else on the branch that has waited longest for work. */
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
    // From the latest on: whatever has ended with another call stands before that one.
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
