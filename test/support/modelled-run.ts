/**
 * Runs a planned step on modelled memory, to see the effect of a fault. Each granule of memory has a word
 * that encodes its history, so two runs agree only if every call has read the right data.
 */

import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  membersOf,
} from "../../src/compile/program/program.js";
import type { ProposedStep } from "./proposed-steps.js";

/** Slices and persistent memory begin and end at multiples of this. */
export const granuleBytes = 64;

/** The inputs of each call, and the final contents of persistent memory. */
export type Outcome = ReadonlyMap<Call | number, string>;

/** An event: a call runs, or a PDL call prefetches before it waits. */
interface Event {
  readonly call: Call;
  readonly fetched?: readonly BufferSlice[];
}

/** The reference: the program's order, and disjoint step buffers. */
export function runProgram({ program }: ProposedStep): Outcome {
  const events = program.map((call) => ({ call }));
  return runEvents(events, ({ id }, granule) => `buffer ${id}, granule ${granule}`);
}

/**
 * The planned offsets, in an order that streams and waits allow; `choose` selects the next of several
 * possible events. A PDL call prefetches when its predecessor on the stream may run, whether that one has
 * ended or not.
 */
export function runPlanned(
  { schedule: { calls }, plan }: ProposedStep,
  choose: (count: number) => number,
): Outcome {
  const [ended, fetched] = [new Set<number>(), new Set<number>()];
  const events: Event[] = [];
  const isReady = (index: number): boolean => {
    const { stream, after } = calls[index]!;
    const isNext = calls.every((other, at) => at >= index || other.stream !== stream || ended.has(at));
    return isNext && after.every((dependency) => ended.has(dependency));
  };
  const canPrefetch = (index: number): boolean => {
    const before = calls.findLastIndex(({ stream }, at) => at < index && stream === calls[index]!.stream);
    return before < 0 || isReady(before);
  };
  while (ended.size < calls.length) {
    const waiting = [...calls.keys()].filter((index) => !ended.has(index));
    const ready = waiting.filter(isReady);
    const prefetching = waiting.filter(
      (index) => calls[index]!.prefetches && !fetched.has(index) && canPrefetch(index),
    );
    const chosen = choose(ready.length + prefetching.length);
    const index = [...ready, ...prefetching][chosen]!;
    const { call, prefetches: prefetched = [] } = calls[index]!;
    if (chosen >= ready.length) {
      fetched.add(index);
      events.push({ call, fetched: prefetched });
    } else {
      ended.add(index);
      events.push({ call });
    }
  }
  return runEvents(
    events,
    (buffer, granule) => `step, granule ${plan.offsets.get(buffer)! / granuleBytes + granule}`,
    choose,
  );
}

/** `choose` selects the next of the concurrent kernels of a launch; default: the first. */
function runEvents(
  events: readonly Event[],
  nameOf: (buffer: Buffer, granule: number) => string,
  choose: (count: number) => number = () => 0,
): Outcome {
  const memory = new Map<string, string>();
  const granulesOf = (slice: BufferSlice): string[] =>
    Array.from({ length: slice.size / granuleBytes }, (_, index) => {
      const granule = slice.offset / granuleBytes + index;
      const { storage } = slice.buffer;
      return storage === undefined
        ? nameOf(slice.buffer, granule)
        : `persistent, granule ${storage.span.address / granuleBytes + granule}`;
    });
  const outcome = new Map<Call | number, string>();
  const readFrom = (slice: BufferSlice): string[] =>
    granulesOf(slice).map((granule) => memory.get(granule) ?? "old");
  const prefetchedBy = new Map<Call, ReadonlyMap<BufferSlice, string[]>>();
  for (const { call, fetched } of events) {
    if (fetched) {
      prefetchedBy.set(call, new Map(fetched.map((slice) => [slice, readFrom(slice)])));
      continue;
    }
    const members = membersOf(call);
    const left = [...(members.length > 0 ? members : [accessesOf(call)]).entries()];
    const texts: string[] = [];
    while (left.length > 0) {
      const [[number, accesses]] = left.splice(choose(left.length), 1) as [(typeof left)[number]];
      const read = accesses.flatMap(({ slice, reads }) => (reads ? [slice] : []));
      const inputs = read.flatMap((slice) => prefetchedBy.get(call)?.get(slice) ?? readFrom(slice));
      texts[number] = inputs.join();
      const output = `${call.op} ${number} of ${wordFor(inputs.join())}`;
      for (const { slice, writes } of accesses)
        for (const granule of writes ? granulesOf(slice) : []) memory.set(granule, output);
    }
    outcome.set(call, texts.join(" with "));
  }
  const kept = [...memory].filter(([granule]) => granule.startsWith("persistent")).sort();
  return outcome.set(0, kept.join("\n"));
}

const words = new Map<string, number>();

/** A short word for a long text, the same for the same text. */
function wordFor(text: string): number {
  const word = words.get(text);
  if (word !== undefined) return word;
  words.set(text, words.size);
  return words.size - 1;
}

export function agree(a: Outcome, b: Outcome): boolean {
  return a.size === b.size && [...a].every(([key, text]) => b.get(key) === text);
}
