/**
 * Gradients of embeddings as compact rows. A step selects few rows of a large table, and the gradient of all others is zero. If the gradient
 * is dead on exit, and only norms and elementwise updates read it, it is not stored: a scatter sums the selected rows into compact rows, and
 * the readers find them through a row map. Zeros change no norm, and the sums have the order of a scatter to the table, so every bit stays.
 */

import { dtypes } from "../../ir/index.js";
import { capabilitiesOf, chunkCount, launchBytes } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { compactRowsLaunches } from "../cost-model.js";
import type { BufferSlice, Node, Program, ScatterCall } from "../program/program.js";
import { isDeadOnExit } from "../trace/dead-on-exit.js";
import { type CompactTable, canReadCompact, canReadTogether, readCompact } from "./compact-reads.js";
import { type Gradient, isUnchangedAfter, storeCompactly } from "./compact-scatter.js";

const { bytes: elementBytes } = dtypes.f32;
/** Kernels access rows in vectors of four. */
const vectorWidth = 4;
/** Kernels compute the offset of a compact row as an i32. */
const maxElements = 2 ** 31 - 1;

export function compactGradients(
  runtime: Runtime,
  program: Program,
  deadOnExit: readonly BufferSlice[],
): void {
  if (!capabilitiesOf(runtime).hasCompactRows) return;
  const tables = new Map<Node, CompactTable[]>();
  const isReadable = (gradients: readonly Gradient[], reader: Node): boolean => {
    const others = tables.get(reader) ?? [];
    return canReadTogether(reader.call.work, [
      ...others.map(({ target }) => target),
      ...gradients.map(targetOf),
    ]);
  };
  for (const group of groupByReaders(program, deadOnExit)) {
    const gradients = group.toSorted((a, b) => targetOf(a).offset - targetOf(b).offset);
    const readers = gradients[0]?.readers ?? [];
    if (!isWorthwhile(runtime, gradients, readers.length)) continue;
    if (!readers.every((reader) => isReadable(gradients, reader))) continue;
    const stored = storeCompactly(runtime, program, gradients);
    for (const reader of readers) tables.set(reader, [...(tables.get(reader) ?? []), ...stored]);
  }
  for (const [reader, read] of tables) readCompact(program, reader, read);
}

const targetOf = ({ scatter }: Gradient): BufferSlice => scatter.target;

/** Gradients with rows of one width that the same readers can read together. They share their compact rows. */
function groupByReaders(program: Program, deadOnExit: readonly BufferSlice[]): readonly Gradient[][] {
  const groups: Gradient[][] = [];
  for (const node of program.nodes) {
    const gradient = gradientOf(program, node, deadOnExit);
    if (!gradient) continue;
    const group = groups.find(([first]) => first && canShare(first, gradient));
    if (group) group.push(gradient);
    else groups.push([gradient]);
  }
  return groups;
}

function canShare(a: Gradient, b: Gradient): boolean {
  return (
    a.scatter.shape.inner === b.scatter.shape.inner &&
    a.scatter.target.buffer === b.scatter.target.buffer &&
    a.readers.length === b.readers.length &&
    a.readers.every(
      (reader) => b.readers.includes(reader) && canReadTogether(reader.call.work, [targetOf(a), targetOf(b)]),
    )
  );
}

/** A scatter whose result can be stored as compact rows. */
function gradientOf(program: Program, node: Node, deadOnExit: readonly BufferSlice[]): Gradient | undefined {
  const { work } = node.call;
  if (work.kind !== "scatter") return undefined;
  const { shape, index, source, target } = work;
  const { dtype, outer, inner, length, isIndexShared, overwrites, strides } = shape;
  if (dtype !== "f32" || outer !== 1 || !isIndexShared || !overwrites || strides) return undefined;
  if (inner % vectorWidth !== 0 || target.size !== length * inner * elementBytes) return undefined;
  // A table has at least two chunks, so that a chunk of a norm overlaps few sections.
  if (chunkCount(length * inner) < 2 || savedBytes(shape) <= 0) return undefined;
  if (!target.buffer.storage || !isDeadOnExit(deadOnExit, target)) return undefined;
  // Scatters of a group run when the last of them does.
  if (![index, source].every(({ buffer }) => isUnchangedAfter(program, buffer, node))) return undefined;
  // The nodes that read the gradient, and the next one that writes it.
  const readers = [...program.consumersOf(node)];
  const isRead = readers.length > 0 && readers.every(({ call }) => canReadCompact(call.work, target));
  return isRead ? { node, scatter: work, readers } : undefined;
}

/** True if whole tables take longer than the launches for compact rows. The gradients are in the order of their addresses. */
function isWorthwhile({ device }: Runtime, gradients: readonly Gradient[], readers: number): boolean {
  const [entries, saved] = [sumOf(gradients, ({ count }) => count), sumOf(gradients, savedBytes)];
  const width = gradients[0]?.scatter.shape.inner ?? 0;
  const runs = gradients.filter((gradient, index) => {
    const before = gradients[index - 1]?.scatter.target;
    return !before || before.offset + before.size !== targetOf(gradient).offset;
  });
  const launches = compactRowsLaunches(readers, runs.length);
  return (
    entries * width <= maxElements && saved * (1 + readers) > launches * launchBytes * device.parallelism
  );
}

function sumOf(gradients: readonly Gradient[], of: (shape: ScatterCall["shape"]) => number): number {
  return gradients.reduce((sum, { scatter }) => sum + of(scatter.shape), 0);
}

/** The bytes of a whole table, less those of its compact rows and its map. */
function savedBytes({ length, inner, count }: ScatterCall["shape"]): number {
  return (length - count) * inner * elementBytes - length * dtypes.i32.bytes;
}
