/**
 * Runs a planned step on modelled memory, to see what a fault does: each piece of memory holds a word that says how it
 * came about, so that two runs agree only if every call has found what it should.
 */

import {
  type Access,
  accessesOf,
  type Buffer,
  type Call,
  membersOf,
  type Part,
} from "../../src/compile/program.js";
import type { ProposedStep } from "./proposed-steps.js";

/** Parts and persistent memory begin and end on these. */
export const pieceBytes = 64;

/** What each call has read, and what is left in persistent memory. */
export type Outcome = ReadonlyMap<Call | number, string>;

/** The truth: the program's order, and each step buffer apart from all others. */
export function runProgram({ program }: ProposedStep): Outcome {
  return runCalls(program, ({ id }, piece) => `buffer ${id}, piece ${piece}`);
}

/** The planned places, in an order that branches and waits allow; `choose` takes one of so many calls that could be next. */
export function runPlanned(
  { schedule: { calls }, plan }: ProposedStep,
  choose: (count: number) => number,
): Outcome {
  const ended = new Set<number>();
  const order: Call[] = [];
  while (order.length < calls.length) {
    const ready = [...calls.keys()].filter((place) => {
      const { branch, after } = calls[place]!;
      const isNext = calls.every((other, at) => at >= place || other.branch !== branch || ended.has(at));
      return !ended.has(place) && isNext && after.every((waited) => ended.has(waited));
    });
    const place = ready[choose(ready.length)]!;
    ended.add(place);
    order.push(calls[place]!.call);
  }
  return runCalls(
    order,
    (buffer, piece) => `step, piece ${plan.offsets.get(buffer)! / pieceBytes + piece}`,
    choose,
  );
}

/** `choose`: which of so many kernels comes next that a launch runs side by side; the first unless given. */
function runCalls(
  calls: readonly Call[],
  placeOf: (buffer: Buffer, piece: number) => string,
  choose: (count: number) => number = () => 0,
): Outcome {
  const memory = new Map<string, string>();
  const piecesOf = (part: Part): string[] =>
    Array.from({ length: part.size / pieceBytes }, (_, index) => {
      const piece = part.offset / pieceBytes + index;
      const { storage } = part.buffer;
      return storage === undefined
        ? placeOf(part.buffer, piece)
        : `persistent, piece ${storage.span.address / pieceBytes + piece}`;
    });
  const outcome = new Map<Call | number, string>();
  for (const call of calls) {
    const members = membersOf(call);
    const left = [...(members.length > 0 ? members : [accessesOf(call)]).entries()];
    const texts: string[] = [];
    while (left.length > 0) {
      const [[number, accesses]] = left.splice(choose(left.length), 1) as [(typeof left)[number]];
      const found = piecesIn(accesses, "reads", piecesOf).map((piece) => memory.get(piece) ?? "old");
      texts[number] = found.join();
      const made = `${call.op} ${number} of ${wordFor(found.join())}`;
      for (const piece of piecesIn(accesses, "writes", piecesOf)) memory.set(piece, made);
    }
    outcome.set(call, texts.join(" beside "));
  }
  const kept = [...memory].filter(([piece]) => piece.startsWith("persistent")).sort();
  return outcome.set(0, kept.join("\n"));
}

function piecesIn(
  accesses: readonly Access[],
  how: "reads" | "writes",
  piecesOf: (part: Part) => string[],
): string[] {
  return accesses.filter((access) => access[how]).flatMap(({ part }) => piecesOf(part));
}

const words = new Map<string, number>();

/** A short word for a long text, the same for the same. */
function wordFor(text: string): number {
  const known = words.get(text);
  if (known !== undefined) return known;
  words.set(text, words.size);
  return words.size - 1;
}

export function agree(a: Outcome, b: Outcome): boolean {
  return a.size === b.size && [...a].every(([key, text]) => b.get(key) === text);
}
