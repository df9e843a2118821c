/**
 * Copy propagation: readers of a copy read its source, and a value that is only copied to its destination is written there directly, such
 * as a gradient in persistent memory.
 */

import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  type CopyCall,
  mapSlices,
  type RowCall,
  type Work,
} from "../program/program.js";
import { type Uses, usesOf } from "../program/uses.js";

export function propagateCopies(calls: readonly Call[]): readonly Call[] {
  return coalesceCopies(forwardDestination(mergeCopies(forwardSource(calls))));
}

/** The new location of a buffer's bytes. */
type Moves = Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>;

/** Copies of unchanged memory into memory with no other writer: readers read the source. */
function forwardSource(calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const moves: Moves = new Map();
  const left = calls.filter(({ work }, place) => {
    if (work.kind !== "copy") return true;
    const { target } = work;
    if (!isWhole(target) || target.buffer.storage || writersOf(uses, target.buffer).length !== 1) return true;
    const lastRead = uses.get(target.buffer)?.readers.at(-1) ?? place;
    // For a copy of a copy: the first source. It must not change before the last reader.
    const source = moved(work.source, moves);
    if (writersOf(uses, source.buffer).some((writer) => writer > place && writer <= lastRead)) return true;
    moves.set(target.buffer, { buffer: source.buffer, offset: source.offset });
    return false;
  });
  return moveAll(left, moves);
}

/** Copies of a whole value to a destination that is free from the value's first write on: it is written there. */
function forwardDestination(calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const moves: Moves = new Map();
  /** Destinations that values were moved to, and their live ranges. */
  const taken = new Map<Buffer, Taken[]>();
  const left = calls.filter(({ work }, place) => {
    if (work.kind !== "copy") return true;
    const { target, source } = work;
    const stay = stayOf(uses, work, place);
    if (!stay || moves.has(source.buffer) || moves.has(target.buffer) || taken.has(source.buffer))
      return true;
    const others = taken.get(target.buffer) ?? [];
    const isFree = others.every(
      ({ slice, from, to }) => to < stay.from || stay.to < from || !overlap(slice, target),
    );
    if (!isFree || isAccessed(calls, uses, target, stay, place)) return true;
    moves.set(source.buffer, { buffer: target.buffer, offset: target.offset });
    taken.set(target.buffer, [...others, { slice: target, ...stay }]);
    return false;
  });
  return moveAll(left, moves);
}

/** Copies of adjacent slices to adjacent slices are merged. */
function mergeCopies(calls: readonly Call[]): readonly Call[] {
  return inRuns(calls, (copies) => {
    const joined: CopyCall[] = [];
    for (const copy of copies) {
      const last = joined.at(-1);
      if (last && follows(last.source, copy.source) && follows(last.target, copy.target)) {
        joined[joined.length - 1] = {
          kind: "copy",
          source: { ...last.source, size: last.source.size + copy.source.size },
          target: { ...last.target, size: last.target.size + copy.target.size },
        };
      } else joined.push(copy);
    }
    return joined;
  });
}

function follows(before: BufferSlice, { buffer, offset }: BufferSlice): boolean {
  return before.buffer === buffer && before.offset + before.size === offset;
}

/** Copies of equal size at equal strides, such as the gradients of equal layers, become one call. */
function coalesceCopies(calls: readonly Call[]): readonly Call[] {
  return inRuns(calls, (copies) => {
    const gathered: Work[] = [];
    for (let first = 0; first < copies.length; ) {
      const count = equallySpaced(copies, first);
      const copy = copies[first];
      if (!copy) break;
      gathered.push(count > 1 ? gatherEqual(copies.slice(first, first + count)) : copy);
      first += count;
    }
    return gathered;
  });
}

/** How many copies from this one on have its size and one stride, in whole words. */
function equallySpaced(copies: readonly CopyCall[], first: number): number {
  const [one, next] = [copies[first], copies[first + 1]];
  if (!one || !next || one.source.size % wordBytes !== 0) return 1;
  const [from, to] = [next.source.offset - one.source.offset, next.target.offset - one.target.offset];
  const isWhole = [from, to, one.source.offset, one.target.offset].every((bytes) => bytes % wordBytes === 0);
  if (!isWhole || from < one.source.size || to < one.source.size) return 1;
  let count = 1;
  for (let other = copies[first + 1]; other; other = copies[first + ++count]) {
    const isNext =
      other.source.buffer === one.source.buffer &&
      other.target.buffer === one.target.buffer &&
      other.source.buffer !== other.target.buffer &&
      other.source.size === one.source.size &&
      other.source.offset === one.source.offset + count * from &&
      other.target.offset === one.target.offset + count * to;
    if (!isNext) break;
  }
  return count;
}

const wordBytes = 4;

/** Words are moved as integers, so that no bit changes. */
const wordCopy: RowKernel = {
  name: "copies",
  inputs: ["i32"],
  outputs: [{ dtype: "i32", per: "element" }],
  scalars: [],
  stages: [{ kind: "store", output: 0, value: term.load(0, "i32") }],
};

/** A strided copy: chunks that are adjacent in the source, and the destination of each. */
export interface StridedCopy {
  readonly source: BufferSlice;
  readonly pieces: readonly BufferSlice[];
  /** True if the chunks are column blocks of the source; otherwise they follow each other. */
  readonly areColumns?: boolean;
}

export function stridedCopyOf(work: Work): StridedCopy | undefined {
  if (work.kind !== "row" || work.kernel !== wordCopy) return undefined;
  const { row, outer } = work.iteration;
  const [source, target] = work.operands;
  const [axis] = outer;
  if (!source || !target || !axis || outer.length > 1 || axis.strides[0] !== row.size) return undefined;
  const step = wordBytes * (axis.strides[1] ?? 0);
  const pieces = Array.from({ length: axis.size }, (_, index) => ({
    ...{ buffer: target.buffer, offset: target.offset + index * step, size: wordBytes * row.size },
  }));
  return { source, pieces };
}

function gatherEqual(copies: readonly CopyCall[]): RowCall {
  const [one, next] = copies as [CopyCall, CopyCall];
  const last = copies.at(-1) ?? one;
  const step = (slice: BufferSlice, other: BufferSlice): number => (other.offset - slice.offset) / wordBytes;
  const over = (slice: BufferSlice, end: BufferSlice): BufferSlice => ({
    ...slice,
    size: end.offset + end.size - slice.offset,
  });
  return {
    kind: "row",
    kernel: wordCopy,
    iteration: iterateElements(
      [copies.length, one.source.size / wordBytes],
      [
        [step(one.source, next.source), 1],
        [step(one.target, next.target), 1],
      ],
    ),
    operands: [over(one.source, last.source), over(one.target, last.target)],
    scalars: [],
  };
}

/** The same calls with each run of consecutive copies rewritten. */
function inRuns(
  calls: readonly Call[],
  change: (copies: readonly CopyCall[]) => readonly Work[],
): readonly Call[] {
  const result: Call[] = [];
  let run: CopyCall[] = [];
  let phase: Call["phase"];
  const end = (): void => {
    const sorted = run.toSorted(
      (a, b) => a.source.buffer.id - b.source.buffer.id || a.source.offset - b.source.offset,
    );
    // Copies that depend on each other keep their order.
    const works = areDisjoint(run) ? change(sorted) : run;
    for (const work of works) result.push({ op: "copy", work, phase });
    run = [];
  };
  for (const call of calls) {
    if (call.work.kind === "copy") {
      run.push(call.work);
      phase = call.phase;
    } else {
      end();
      result.push(call);
    }
  }
  end();
  return result;
}

/** True if no copy reads or writes what another one writes. */
function areDisjoint(copies: readonly CopyCall[]): boolean {
  const sources = new Set(copies.map(({ source }) => source.buffer));
  if (copies.some(({ target }) => sources.has(target.buffer))) return false;
  const targets = copies
    .map(({ target }) => target)
    .toSorted((a, b) => a.buffer.id - b.buffer.id || a.offset - b.offset);
  return targets.every((slice, index) => {
    const next = targets[index + 1];
    return next?.buffer !== slice.buffer || slice.offset + slice.size <= next.offset;
  });
}

/** From when to when a value is there, in places of calls. */
interface Stay {
  readonly from: number;
  readonly to: number;
}

interface Taken extends Stay {
  readonly slice: BufferSlice;
}

/** From the first write of a value to its last read; undefined if it cannot be moved. */
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

/** True if a call other than the copy accesses the destination meanwhile. */
function isAccessed(
  calls: readonly Call[],
  uses: ReadonlyMap<Buffer, Uses>,
  target: BufferSlice,
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
      accessesOf(call).some(({ slice }) => overlap(slice, target))
    );
  });
}

export function overlap(a: BufferSlice, b: BufferSlice): boolean {
  return a.buffer === b.buffer && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

export function isWhole({ buffer, offset, size }: BufferSlice): boolean {
  return offset === 0 && size === buffer.bytes;
}

function writersOf(uses: ReadonlyMap<Buffer, Uses>, buffer: Buffer): readonly number[] {
  return uses.get(buffer)?.writers ?? [];
}

function moveAll(calls: readonly Call[], moves: Moves): readonly Call[] {
  if (moves.size === 0) return calls;
  return calls.map((call) => ({ ...call, work: mapSlices(call.work, (slice) => moved(slice, moves)) }));
}

function moved(slice: BufferSlice, moves: Moves): BufferSlice {
  let { buffer, offset } = slice;
  for (let to = moves.get(buffer); to; to = moves.get(buffer)) {
    offset += to.offset;
    buffer = to.buffer;
  }
  return buffer === slice.buffer ? slice : { buffer, offset, size: slice.size };
}
