/** Stores the gradients of several embeddings as compact rows: their row maps in one call, and a scatter for each, which `groupScatters` merges. */

import { dtypes } from "../../ir/index.js";
import { backendOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { movedValueOf } from "../program/casts.js";
import type { Buffer, BufferSlice, Node, Program, ScatterCall, Work } from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";
import type { CompactTable } from "./compact-reads.js";

const { bytes: elementBytes } = dtypes.f32;

/** The scatter of a gradient, and all nodes that read its result. */
export interface Gradient {
  readonly node: Node;
  readonly scatter: ScatterCall;
  readonly readers: readonly Node[];
}

/** True if no node after a given one writes the buffer. */
export function isUnchangedAfter(program: Program, buffer: Buffer, node: Node): boolean {
  return program.uses(buffer).writers.every((writer) => writer.isBefore(node));
}

/** The gradients are in the order of their addresses, and have rows of one width. */
export function storeCompactly(
  runtime: Runtime,
  program: Program,
  gradients: readonly Gradient[],
): readonly CompactTable[] {
  const [first] = gradients;
  if (!first) return [];
  const width = first.scatter.shape.inner;
  const tables = placeTables(program, gradients);
  const [rows, entries] = [endOf(tables, "firstRow", "length"), endOf(tables, "firstEntry", "count")];
  const allocate = (elements: number, label: string): BufferSlice => {
    const size = elements * elementBytes;
    return { buffer: program.makeBuffer(size, label), offset: 0, size };
  };
  const map = allocate(rows, "row map");
  const owners = allocate(entries, "row owners");
  const values = allocate(entries * width, "compact rows");
  const insert = (anchor: Node | undefined, work: Work): Node =>
    program.insertAfter(anchor, { ...first.node.call, work });

  insert(lastWriterOf(program, gradients), {
    ...{ kind: "row-map", map, owners },
    tables: gradients.map(({ scatter: { index, shape } }) => ({
      ...{ index, stride: 1, count: shape.count, rows: shape.length },
    })),
  });
  let last = latestOf(gradients.map(({ node }) => node));
  for (const { firstEntry, count, source, stride } of tables) {
    const shape: ScatterCall["shape"] = {
      // One slot for each entry.
      ...{
        dtype: "f32",
        outer: 1,
        length: count,
        inner: width,
        count,
        isIndexShared: true,
        overwrites: true,
      },
      strides: { outerSource: 0, sourceRow: stride },
    };
    const part = ({ buffer }: BufferSlice, elements: number): BufferSlice => ({
      ...{ buffer, offset: firstEntry * elements * elementBytes, size: count * elements * elementBytes },
    });
    last = insert(last, {
      ...{ kind: "scatter", shape, index: part(owners, 1), target: part(values, width), source },
      scratch: backendOf(runtime)
        .scatterScratchBytes([shape])
        .map((size) => ({ buffer: program.makeBuffer(size, "scatter scratch"), offset: 0, size })),
    });
  }
  for (const { node } of gradients) program.remove(node);
  for (const { copy } of tables) if (copy) program.remove(copy);
  return tables.map(({ target, length, firstRow }) => ({
    target,
    rows: length,
    width,
    firstRow,
    map,
    values,
  }));
}

/** A table of the group: its first row in the map, and its first entry. */
interface PlacedTable extends Source {
  readonly target: BufferSlice;
  readonly length: number;
  readonly count: number;
  readonly firstRow: number;
  readonly firstEntry: number;
}

function placeTables(program: Program, gradients: readonly Gradient[]): readonly PlacedTable[] {
  let [firstRow, firstEntry] = [0, 0];
  return gradients.map((gradient) => {
    const { target, shape } = gradient.scatter;
    const { length, count } = shape;
    const table = { ...sourceOf(program, gradient), target, length, count, firstRow, firstEntry };
    firstRow += length;
    firstEntry += count;
    return table;
  });
}

function endOf(
  tables: readonly PlacedTable[],
  first: "firstRow" | "firstEntry",
  size: "length" | "count",
): number {
  const last = tables.at(-1);
  return last ? last[first] + last[size] : 0;
}

/** The last node that writes an index before its scatter. */
function lastWriterOf(program: Program, gradients: readonly Gradient[]): Node | undefined {
  return latestOf(gradients.flatMap(({ scatter: { index } }) => program.uses(index.buffer).writers));
}

function latestOf(nodes: readonly Node[]): Node | undefined {
  return nodes.reduce<Node | undefined>(
    (latest, node) => (latest?.isBefore(node) === false ? latest : node),
    undefined,
  );
}

/** The rows that a scatter adds: in memory `stride` elements apart. */
interface Source {
  readonly source: BufferSlice;
  readonly stride: number;
  /** The copy that made them contiguous, which nothing else needs. */
  readonly copy?: Node;
}

function sourceOf(program: Program, { node, scatter: { source, shape } }: Gradient): Source {
  const { writers, readers } = program.uses(source.buffer);
  const [copy] = writers;
  const isOwn = isWrittenOnce(program, source.buffer) && readers.length === 1 && readers[0] === node;
  const from = isOwn && copy ? rowsOfCopy(copy.call.work, shape.count, shape.inner) : undefined;
  if (!copy || !from || !isUnchangedAfter(program, from.source.buffer, copy))
    return { source, stride: shape.inner };
  return { ...from, copy };
}

/** The rows that a call copies as they are to contiguous memory; undefined if it does anything else. */
function rowsOfCopy(work: Work, rows: number, width: number): Source | undefined {
  if (work.kind !== "row" || movedValueOf(work)?.kind !== "load") return undefined;
  const { kernel, iteration, operands } = work;
  const [[axis, ...others], { row }] = [iteration.outer, iteration];
  const [slice] = operands;
  const isPlain =
    kernel.inputs[0] === "f32" &&
    kernel.outputs[0]?.dtype === "f32" &&
    others.length === 0 &&
    axis?.size === rows;
  const isContiguous = row.size === width && row.strides.every((stride) => stride === 1);
  const [stride = 0, targetStride = 0] = axis?.strides ?? [];
  return slice && isPlain && isContiguous && targetStride === width && stride >= width
    ? { source: slice, stride }
    : undefined;
}
