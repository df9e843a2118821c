/**
 * Leaves out plain copies. A value that is copied and never changed again is read where it came from; and a value that is
 * made only to be copied to its place is made there: gradients in their persistent memory, results in their slots.
 */

import { accessesOf, type Buffer, type Call, type CopyCall, mapParts, type Part } from "../program.js";
import { type Uses, usesOf } from "../uses.js";

export function removeCopies(calls: readonly Call[]): readonly Call[] {
  return makeInPlace(readAtSource(calls));
}

/** What a buffer's bytes are found at instead. */
type Moves = Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>;

/** Copies of what stays as it is, into memory that nothing else writes: readers look at the source. */
function readAtSource(calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const moves: Moves = new Map();
  const left = calls.filter(({ work }, place) => {
    if (work.kind !== "copy") return true;
    const { target, source } = work;
    if (!isWhole(target) || target.buffer.storage || writersOf(uses, target.buffer).length !== 1) return true;
    const lastRead = uses.get(target.buffer)?.readers.at(-1) ?? place;
    // The source must hold still until the last of them has read it.
    if (writersOf(uses, source.buffer).some((writer) => writer > place && writer < lastRead)) return true;
    moves.set(target.buffer, { buffer: source.buffer, offset: source.offset });
    return false;
  });
  return moveAll(left, moves);
}

/** Copies of all of a value to a place that is free from the value's making on: it is made there. */
function makeInPlace(calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const moves: Moves = new Map();
  /** Which places values have been moved to, and from when to when. */
  const taken = new Map<Buffer, Taken[]>();
  const left = calls.filter(({ work }, place) => {
    if (work.kind !== "copy") return true;
    const { target, source } = work;
    const stay = stayOf(uses, work, place);
    if (!stay || moves.has(source.buffer) || moves.has(target.buffer) || taken.has(source.buffer))
      return true;
    const others = taken.get(target.buffer) ?? [];
    const isFree = others.every(
      ({ part, from, to }) => to < stay.from || stay.to < from || !overlap(part, target),
    );
    if (!isFree || isTouched(calls, uses, target, stay, place)) return true;
    moves.set(source.buffer, { buffer: target.buffer, offset: target.offset });
    taken.set(target.buffer, [...others, { part: target, ...stay }]);
    return false;
  });
  return moveAll(left, moves);
}

/** From when to when a value is there, in places of calls. */
interface Stay {
  readonly from: number;
  readonly to: number;
}

interface Taken extends Stay {
  readonly part: Part;
}

/** From a value's making to its last reader; nothing where it can't be made elsewhere. */
function stayOf(
  uses: ReadonlyMap<Buffer, Uses>,
  { target, source }: CopyCall,
  place: number,
): Stay | undefined {
  if (source.buffer.storage || source.buffer === target.buffer || !isWhole(source)) return undefined;
  const { writers = [], readers = [] } = uses.get(source.buffer) ?? {};
  const [first, last] = [writers[0], writers.at(-1)];
  if (first === undefined || last === undefined || last > place) return undefined;
  return { from: first, to: Math.max(place, readers.at(-1) ?? place) };
}

/** Does a call other than the copy meet the place meanwhile? */
function isTouched(
  calls: readonly Call[],
  uses: ReadonlyMap<Buffer, Uses>,
  target: Part,
  { from, to }: Stay,
  copy: number,
): boolean {
  const { writers = [], readers = [] } = uses.get(target.buffer) ?? {};
  return [...writers, ...readers].some((place) => {
    const call = calls[place];
    return (
      place !== copy &&
      place >= from &&
      place <= to &&
      call !== undefined &&
      accessesOf(call).some(({ part }) => overlap(part, target))
    );
  });
}

function overlap(a: Part, b: Part): boolean {
  return a.buffer === b.buffer && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

function isWhole({ buffer, offset, size }: Part): boolean {
  return offset === 0 && size === buffer.bytes;
}

function writersOf(uses: ReadonlyMap<Buffer, Uses>, buffer: Buffer): readonly number[] {
  return uses.get(buffer)?.writers ?? [];
}

function moveAll(calls: readonly Call[], moves: Moves): readonly Call[] {
  if (moves.size === 0) return calls;
  const moved = (part: Part): Part => {
    let { buffer, offset } = part;
    for (let to = moves.get(buffer); to; to = moves.get(buffer)) {
      offset += to.offset;
      buffer = to.buffer;
    }
    return buffer === part.buffer ? part : { buffer, offset, size: part.size };
  };
  return calls.map((call) => ({ ...call, work: mapParts(call.work, moved) }));
}
