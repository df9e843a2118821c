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
export const pieceBytes = 64;

/** The inputs of each call, and the final contents of persistent memory. */
export type Outcome = ReadonlyMap<Call | number, string>;

/** An event: a call runs, or a PDL call prefetches before it waits. */
interface Turn {
  readonly call: Call;
  readonly fetched?: readonly BufferSlice[];
}

/** The reference: the program's order, and disjoint step buffers. */
export function runProgram({ program }: ProposedStep): Outcome {
  const turns = program.map((call) => ({ call }));
  return runTurns(turns, ({ id }, piece) => `buffer ${id}, granule ${piece}`);
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
  const turns: Turn[] = [];
  const isReady = (place: number): boolean => {
    const { stream, after } = calls[place]!;
    const isNext = calls.every((other, at) => at >= place || other.stream !== stream || ended.has(at));
    return isNext && after.every((waited) => ended.has(waited));
  };
  const isPartial = (place: number): boolean => {
    const before = calls.findLastIndex(({ stream }, at) => at < place && stream === calls[place]!.stream);
    return before < 0 || isReady(before);
  };
  while (ended.size < calls.length) {
    const waiting = [...calls.keys()].filter((place) => !ended.has(place));
    const ready = waiting.filter(isReady);
    const early = waiting.filter(
      (place) => calls[place]!.prefetches && !fetched.has(place) && isPartial(place),
    );
    const chosen = choose(ready.length + early.length);
    const place = [...ready, ...early][chosen]!;
    const { call, prefetches: parts = [] } = calls[place]!;
    if (chosen >= ready.length) {
      fetched.add(place);
      turns.push({ call, fetched: parts });
    } else {
      ended.add(place);
      turns.push({ call });
    }
  }
  return runTurns(
    turns,
    (buffer, piece) => `step, granule ${plan.offsets.get(buffer)! / pieceBytes + piece}`,
    choose,
  );
}

/** `choose` selects the next of the concurrent kernels of a launch; default: the first. */
function runTurns(
  turns: readonly Turn[],
  placeOf: (buffer: Buffer, piece: number) => string,
  choose: (count: number) => number = () => 0,
): Outcome {
  const memory = new Map<string, string>();
  const piecesOf = (part: BufferSlice): string[] =>
    Array.from({ length: part.size / pieceBytes }, (_, index) => {
      const piece = part.offset / pieceBytes + index;
      const { storage } = part.buffer;
      return storage === undefined
        ? placeOf(part.buffer, piece)
        : `persistent, granule ${storage.span.address / pieceBytes + piece}`;
    });
  const outcome = new Map<Call | number, string>();
  const foundIn = (part: BufferSlice): string[] => piecesOf(part).map((piece) => memory.get(piece) ?? "old");
  const early = new Map<Call, ReadonlyMap<BufferSlice, string[]>>();
  for (const { call, fetched } of turns) {
    if (fetched) {
      early.set(call, new Map(fetched.map((part) => [part, foundIn(part)])));
      continue;
    }
    const members = membersOf(call);
    const left = [...(members.length > 0 ? members : [accessesOf(call)]).entries()];
    const texts: string[] = [];
    while (left.length > 0) {
      const [[number, accesses]] = left.splice(choose(left.length), 1) as [(typeof left)[number]];
      const read = accesses.flatMap(({ slice: part, reads }) => (reads ? [part] : []));
      const found = read.flatMap((part) => early.get(call)?.get(part) ?? foundIn(part));
      texts[number] = found.join();
      const made = `${call.op} ${number} of ${wordFor(found.join())}`;
      for (const { slice: part, writes } of accesses)
        for (const piece of writes ? piecesOf(part) : []) memory.set(piece, made);
    }
    outcome.set(call, texts.join(" beside "));
  }
  const kept = [...memory].filter(([piece]) => piece.startsWith("persistent")).sort();
  return outcome.set(0, kept.join("\n"));
}

const words = new Map<string, number>();

/** A short word for a long text, the same for the same text. */
function wordFor(text: string): number {
  const known = words.get(text);
  if (known !== undefined) return known;
  words.set(text, words.size);
  return words.size - 1;
}

export function agree(a: Outcome, b: Outcome): boolean {
  return a.size === b.size && [...a].every(([key, text]) => b.get(key) === text);
}
