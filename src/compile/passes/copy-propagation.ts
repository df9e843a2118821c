/**
 * Copy propagation: readers of a copy read its source, and a value that is only copied to its destination is written there directly, such
 * as a gradient in persistent memory.
 */

import { iterateElements, type RowKernel, term } from "../../ir/index.js";
import { alignment } from "../../runtime/index.js";
import type { Buffer, BufferSlice, CopyCall, Node, Program, RowCall, Work } from "../program/program.js";
import { relocateCalls, relocateSlice } from "../program/relocation.js";
import { isWrittenOnce } from "../program/uses.js";

export function propagateCopies(program: Program): void {
  forwardSource(program);
  mergeCopies(program);
  forwardDestination(program);
  coalesceCopies(program);
}

/** The new location of a buffer's bytes. */
type Relocated = Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>;

/** Copies of unchanged memory into memory with no other writer: readers read the source. */
function forwardSource(program: Program): void {
  const relocated: Relocated = new Map();
  const copies = program.nodes.filter((node) => {
    const { work } = node.call;
    if (work.kind !== "copy") return false;
    const { buffer } = work.target;
    if (!isWhole(work.target) || !isWrittenOnce(program, buffer)) return false;
    const lastReader = program.uses(buffer).readers.at(-1) ?? node;
    // For a copy of a copy: the first source. It must not change before the last reader.
    const source = relocateSlice(work.source, relocated);
    const isChanged = program
      .uses(source.buffer)
      .writers.some((writer) => node.isBefore(writer) && !lastReader.isBefore(writer));
    if (isChanged) return false;
    relocated.set(buffer, { buffer: source.buffer, offset: source.offset });
    return true;
  });
  for (const copy of copies) program.remove(copy);
  relocateCalls(program, relocated);
}

/** Copies of a whole value to a destination that is free from the value's first write on: it is written there. */
function forwardDestination(program: Program): void {
  const relocated: Relocated = new Map();
  /** Destinations that values were moved to, and their live ranges. */
  const taken = new Map<Buffer, TakenSlice[]>();
  const copies = program.nodes.filter((node) => {
    const { work } = node.call;
    if (work.kind !== "copy") return false;
    const { target, source } = work;
    const range = liveRangeOf(program, work, node);
    if (!range || relocated.has(source.buffer) || relocated.has(target.buffer) || taken.has(source.buffer))
      return false;
    const others = taken.get(target.buffer) ?? [];
    const isFree = others.every(
      ({ slice, from, to }) => to.isBefore(range.from) || range.to.isBefore(from) || !overlap(slice, target),
    );
    if (!isFree || isAccessed(program, target, range, node) || !mayBePlacedAt(program, work)) return false;
    relocated.set(source.buffer, { buffer: target.buffer, offset: target.offset });
    taken.set(target.buffer, [...others, { slice: target, ...range }]);
    return true;
  });
  for (const copy of copies) program.remove(copy);
  relocateCalls(program, relocated);
}

/** Copies of adjacent slices to adjacent slices are merged. */
function mergeCopies(program: Program): void {
  rewriteRuns(program, (copies) => {
    const merged: CopyCall[] = [];
    for (const copy of copies) {
      const last = merged.at(-1);
      if (last && follows(last.source, copy.source) && follows(last.target, copy.target)) {
        merged[merged.length - 1] = {
          kind: "copy",
          source: { ...last.source, size: last.source.size + copy.source.size },
          target: { ...last.target, size: last.target.size + copy.target.size },
        };
      } else merged.push(copy);
    }
    return merged;
  });
}

function follows(before: BufferSlice, { buffer, offset }: BufferSlice): boolean {
  return before.buffer === buffer && before.offset + before.size === offset;
}

/** Copies of equal size at equal strides, such as the gradients of equal layers, become one call. */
function coalesceCopies(program: Program): void {
  rewriteRuns(program, (copies) => {
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
  readonly chunks: readonly BufferSlice[];
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
  const chunks = Array.from({ length: axis.size }, (_, index) => ({
    ...{ buffer: target.buffer, offset: target.offset + index * step, size: wordBytes * row.size },
  }));
  return { source, chunks };
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

/** Rewrites each run of consecutive copies. */
function rewriteRuns(program: Program, rewrite: (copies: readonly CopyCall[]) => readonly Work[]): void {
  let run: Node[] = [];
  for (const node of program.nodes) {
    if (node.call.work.kind === "copy") run.push(node);
    else {
      rewriteRun(program, run, rewrite);
      run = [];
    }
  }
  rewriteRun(program, run, rewrite);
}

function rewriteRun(
  program: Program,
  run: readonly Node[],
  rewrite: (copies: readonly CopyCall[]) => readonly Work[],
): void {
  const copies = run.flatMap(({ call }) => (call.work.kind === "copy" ? call.work : []));
  const sorted = copies.toSorted(
    (a, b) => a.source.buffer.id - b.source.buffer.id || a.source.offset - b.source.offset,
  );
  // Copies that depend on each other keep their order.
  const works = areDisjoint(copies) ? rewrite(sorted) : copies;
  const phase = run.at(-1)?.call.phase;
  for (const [index, node] of run.entries()) {
    const { call } = node;
    const work = works[index];
    if (!work) program.remove(node);
    else if (work !== call.work || call.op !== "copy" || call.phase !== phase)
      program.replace(node, { op: "copy", work, phase });
  }
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

/** The first and the last node of a value's live range. */
interface LiveRange {
  readonly from: Node;
  readonly to: Node;
}

interface TakenSlice extends LiveRange {
  readonly slice: BufferSlice;
}

/** From the first write of a value to its last read; undefined if it cannot be moved. */
function liveRangeOf(program: Program, { target, source }: CopyCall, copy: Node): LiveRange | undefined {
  if (source.buffer.storage || source.buffer === target.buffer || !isWhole(source)) return undefined;
  const { writers, readers } = program.uses(source.buffer);
  const [first, last] = [writers[0], writers.at(-1)];
  if (!first || !last || copy.isBefore(last)) return undefined;
  return { from: first, to: readers.at(-1) ?? copy };
}

/** A library may choose another algorithm for memory that is aligned less than step memory, and that can change bits. */
function mayBePlacedAt(program: Program, { target, source }: CopyCall): boolean {
  const address = (target.buffer.storage?.span.address ?? 0) + target.offset;
  const { writers, readers } = program.uses(source.buffer);
  return (
    address % alignment === 0 ||
    [...writers, ...readers].every(({ call: { work } }) => work.kind !== "gemm" && work.kind !== "launch")
  );
}

/** True if a call other than the copy accesses the destination meanwhile. */
function isAccessed(program: Program, target: BufferSlice, { from, to }: LiveRange, copy: Node): boolean {
  return program
    .usersBetween(target.buffer, from, to)
    .some((node) => node !== copy && node.accesses.some(({ slice }) => overlap(slice, target)));
}

export function overlap(a: BufferSlice, b: BufferSlice): boolean {
  return a.buffer === b.buffer && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

export function isWhole({ buffer, offset, size }: BufferSlice): boolean {
  return offset === 0 && size === buffer.bytes;
}
