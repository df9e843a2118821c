/**
 * Reads compact rows instead of the table that they belong to. A norm gets them as a section of its vector. An elementwise call is split: into
 * calls over whole rows of the tables, which load a row at its position or take zero, and calls over the memory in between.
 */

import {
  type Axis,
  dtypes,
  type Expression,
  type Iteration,
  type RowKernel,
  type Stage,
  term,
} from "../../ir/index.js";
import type { ReducedVector } from "../../kernels/index.js";
import { alignment } from "../../runtime/index.js";
import { alignUp } from "../../units/index.js";
import { Interner } from "../fusion/vertical/interner.js";
import { isFlat, sliceFlat } from "../program/flat.js";
import type { BufferSlice, ChunkedReduceCall, Node, Program, RowCall, Work } from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";

const { bytes: elementBytes } = dtypes.f32;

/** A table of zeros, except for compact rows. */
export interface CompactTable {
  /** The memory that has the whole table elsewhere. */
  readonly target: BufferSlice;
  readonly rows: number;
  readonly width: number;
  /** i32: the positions of the rows of several tables, of which this one's begin at `firstRow`. */
  readonly map: BufferSlice;
  readonly firstRow: number;
  readonly values: BufferSlice;
}

type PlainVector = Extract<ReducedVector<BufferSlice>, { readonly storage: unknown }>;

/** True if the call can read a table that is stored in compact rows. */
export function canReadCompact(work: Work, table: BufferSlice): boolean {
  if (work.kind === "chunked-reduce") {
    const { kernel, vectors } = work;
    return kernel.ignoresZeros === true && kernel.dtype === "f32" && vectors.every(hasAllOrNoneOf(table));
  }
  return work.kind === "row" && isFlat(work) && inputOf(work, table) !== undefined;
}

/** True for a vector that contains the whole table, at an aligned offset, or no part of it. */
const hasAllOrNoneOf =
  (table: BufferSlice) =>
  (vector: ReducedVector<BufferSlice>): boolean =>
    "storage" in vector && (contains(sliceOf(vector), table) || !overlaps(sliceOf(vector), table));

const sliceOf = ({ storage, length }: PlainVector): BufferSlice => ({
  ...{ ...storage, size: length * elementBytes },
});

function contains(outer: BufferSlice, inner: BufferSlice): boolean {
  return (
    outer.buffer === inner.buffer &&
    outer.offset <= inner.offset &&
    inner.offset + inner.size <= outer.offset + outer.size &&
    (inner.offset - outer.offset) % alignment === 0
  );
}

const overlaps = (a: BufferSlice, b: BufferSlice): boolean => !areDisjoint(extentOf(a), extentOf(b));

/**
 * The input that has the whole table, if the call reads it once and does not write it. The padding after a table is not computed, so results
 * with padding must be in persistent memory, whose padding nothing reads.
 */
function inputOf({ kernel, iteration, operands }: RowCall, table: BufferSlice): number | undefined {
  const [input, ...others] = operands.flatMap((slice, operand) => (overlaps(slice, table) ? [operand] : []));
  if (input === undefined || others.length > 0) return undefined;
  const slice = operands[input];
  const isWhole = slice !== undefined && contains(slice, table) && iteration.row.strides[input] === 1;
  if (!isWhole || kernel.inputs[input] !== "f32") return undefined;
  const hasPadding = slice.size !== table.size;
  const outputs = operands.slice(kernel.inputs.length);
  return hasPadding && outputs.some(({ buffer }) => !buffer.storage) ? undefined : input;
}

/** True if a call can read these tables together, each of which it can read. */
export function canReadTogether(work: Work, tables: readonly BufferSlice[]): boolean {
  return work.kind !== "row" || new Set(tables.map((table) => inputOf(work, table))).size <= 1;
}

/** Replaces a node by calls that read these tables as compact rows. */
export function readCompact(program: Program, node: Node, tables: readonly CompactTable[]): void {
  const { call } = node;
  const sorted = tables.toSorted((a, b) => a.target.offset - b.target.offset);
  for (const work of worksOf(call.work, mergeTables(sorted))) program.insertBefore(node, { ...call, work });
  program.remove(node);
}

function worksOf(work: Work, tables: readonly CompactTable[]): readonly Work[] {
  if (work.kind === "chunked-reduce") return [withSections(work, tables)];
  if (work.kind === "row") return splitRows(work, tables);
  throw new Error(`A call of kind ${work.kind} cannot read compact rows.`);
}

/** Tables that are neighbours in memory and in their map are one. */
function mergeTables(tables: readonly CompactTable[]): readonly CompactTable[] {
  const merged: CompactTable[] = [];
  for (const table of tables) {
    const last = merged.at(-1);
    const isNext =
      last?.map === table.map &&
      last.firstRow + last.rows === table.firstRow &&
      last.target.offset + last.target.size === table.target.offset;
    if (!last || !isNext) merged.push(table);
    else {
      const target = { ...last.target, size: last.target.size + table.target.size };
      merged[merged.length - 1] = { ...last, target, rows: last.rows + table.rows };
    }
  }
  return merged;
}

const mapOf = ({ map, firstRow, rows }: CompactTable): BufferSlice => ({
  ...{ buffer: map.buffer, offset: map.offset + firstRow * dtypes.i32.bytes, size: rows * dtypes.i32.bytes },
});

/** A range of bytes of a slice: a table, or memory between tables. */
interface Section {
  readonly offset: number;
  readonly size: number;
  readonly table?: CompactTable;
}

/** The sections of a slice in order. Padding after a table is left out: it is zero, and stays zero. */
function sectionsOf(slice: BufferSlice, tables: readonly CompactTable[]): readonly Section[] {
  const sections: Section[] = [];
  const end = slice.offset + slice.size;
  let done = slice.offset;
  for (const table of tables) {
    const { offset, size } = table.target;
    if (done < offset) sections.push({ offset: done, size: offset - done });
    sections.push({ offset, size, table });
    done = alignUp(offset + size, alignment);
  }
  if (done < end) sections.push({ offset: done, size: end - done });
  return sections;
}

function withSections(work: ChunkedReduceCall, tables: readonly CompactTable[]): ChunkedReduceCall {
  const vectors = work.vectors.map((vector): ReducedVector<BufferSlice> => {
    if (!("storage" in vector)) return vector;
    const slice = sliceOf(vector);
    const present = tables.filter(({ target }) => overlaps(slice, target));
    if (present.length === 0) return vector;
    const sections = sectionsOf(slice, present).map(({ offset, size, table }) => ({
      first: (offset - slice.offset) / elementBytes,
      length: size / elementBytes,
      storage: table ? table.values : { ...slice, offset, size },
      ...(table && { rowMap: { storage: mapOf(table), width: table.width } }),
    }));
    return { length: vector.length, sections };
  });
  return { ...work, vectors };
}

function splitRows(work: RowCall, tables: readonly CompactTable[]): readonly RowCall[] {
  const [first] = tables;
  const input = first && inputOf(work, first.target);
  const slice = input === undefined ? undefined : work.operands[input];
  if (input === undefined || !slice) return [work];
  return sectionsOf(slice, tables).map((section) => {
    const start = (section.offset - slice.offset) / elementBytes;
    const part = sliceFlat(work, start, section.size / elementBytes);
    return section.table ? overRows(part, input, section.table) : part;
  });
}

/** Work on the elements of a table, row by row: the input is a compact row, or zero. */
function overRows(work: RowCall, input: number, table: CompactTable): RowCall {
  const { kernel, iteration, operands, scalars } = work;
  const { rows, width, values } = table;
  const inputs = kernel.inputs.length;
  // The map is the last input.
  const withMap = <T>(list: readonly T[], map: T): T[] => [
    ...list.slice(0, inputs),
    map,
    ...list.slice(inputs),
  ];
  const along = (size: number, ofFlat: number, ofValues: number, ofMap: number): Axis => ({
    size,
    strides: withMap(
      iteration.row.strides.map((flat, operand) => (operand === input ? ofValues : flat * ofFlat)),
      ofMap,
    ),
  });
  const perRow: Iteration = {
    ...{ kind: "elements", outer: [along(rows, width, 0, 1)], row: along(width, 1, 1, 0) },
    ...{ rows, elements: rows * width },
  };
  return {
    kind: "row",
    kernel: compactKernel(kernel, input),
    iteration: perRow,
    operands: withMap(
      operands.map((slice, operand) => (operand === input ? values : slice)),
      mapOf(table),
    ),
    scalars: [...scalars, width],
  };
}

const known = new WeakMap<RowKernel, Map<number, RowKernel>>();

/** Compiled code is cached by kernel identity, so each variant is made once. */
function compactKernel(kernel: RowKernel, input: number): RowKernel {
  const variants = known.get(kernel) ?? new Map<number, RowKernel>();
  known.set(kernel, variants);
  const variant = variants.get(input) ?? makeCompactKernel(kernel, input);
  variants.set(input, variant);
  return variant;
}

function makeCompactKernel(kernel: RowKernel, input: number): RowKernel {
  const interner = new Interner();
  const rewrite = (value: Expression, element?: Expression): Expression =>
    interner.rewrite(value, {
      load: (index, type, at) =>
        index === input && element ? element : { kind: "load", input: index, type, ...(at && { at }) },
      scalar: (index, type) => ({ kind: "scalar", index, type }),
      reduced: (stage, type) => ({ kind: "reduced", stage, type }),
    });
  const position = term.load(kernel.inputs.length, "i32");
  const isPresent = term.ge(position, 0);
  const offset = term.mul(term.select(isPresent, position, 0), term.scalar(kernel.scalars.length, "i32"));
  const element = rewrite(term.select(isPresent, term.load(input, "f32", offset), 0));
  return {
    ...kernel,
    name: `${kernel.name} of compact rows`,
    inputs: [...kernel.inputs, "i32"],
    scalars: [...kernel.scalars, "i32"],
    stages: kernel.stages.map((stage): Stage => ({ ...stage, value: rewrite(stage.value, element) })),
  };
}
