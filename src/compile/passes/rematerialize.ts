/**
 * Rematerialisation: a value that is live across the memory peak is recomputed after it, if a row kernel made it from inputs that are
 * still live there. Vertical fusion can then compute it inside its reader.
 */

import { maxRematerializeRounds, minRematerializedGap, minRematerializedShare } from "../cost-model.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  mapSlices,
  type Node,
  type Program,
} from "../program/program.js";
import { lifetimesOf, peakOf, plannedBytes } from "../schedule/liveness.js";

export interface RematerializeLimits {
  /** The smallest value that is recomputed; default: a share of the peak. */
  readonly minBytes?: number;
  /** The share by which a round has to lower the peak; default: any. */
  readonly minGain?: number;
}

/** Returns the nodes that compute values again. */
export function rematerialize(
  program: Program,
  { minBytes, minGain = 0 }: RematerializeLimits = {},
): readonly Node[] {
  const inserted: Node[] = [];
  let bytes = peakBytesOf(program.calls);
  for (let round = 0; round < maxRematerializeRounds; round++) {
    const edits = editsAtPeak(program, minBytes ?? minRematerializedShare * bytes);
    const nextBytes = peakBytesOf(callsWith(program, edits));
    if (nextBytes >= bytes || nextBytes > (1 - minGain) * bytes) break;
    inserted.push(...apply(program, edits));
    bytes = nextBytes;
  }
  return inserted;
}

function peakBytesOf(calls: readonly Call[]): number {
  return peakOf(lifetimesOf(inOrder(calls))).bytes;
}

function inOrder(calls: readonly Call[]) {
  return { calls: calls.map((call) => ({ call, stream: 0, after: [] })) };
}

/** Calls to insert before a node, and the call that replaces it. */
interface Edit {
  readonly inserted: readonly Call[];
  readonly call: Call;
}

type Edits = ReadonlyMap<Node, Edit>;

function callsWith(program: Program, edits: Edits): readonly Call[] {
  return program.nodes.flatMap((node) => {
    const edit = edits.get(node);
    return edit ? [...edit.inserted, edit.call] : [node.call];
  });
}

function apply(program: Program, edits: Edits): readonly Node[] {
  return [...edits].flatMap(([node, { inserted, call }]) => {
    const copies = inserted.map((copy) => program.insertBefore(node, copy));
    program.replace(node, call);
    return copies;
  });
}

/** Recomputes values of at least `minBytes` that are live at the peak after it, if possible. */
function editsAtPeak(program: Program, minBytes: number): Edits {
  const { nodes } = program;
  const indices = new Map(nodes.map((node, index) => [node, index]));
  const indexOf = (node: Node): number => indices.get(node) ?? 0;
  const lifetimes = lifetimesOf(inOrder(program.calls));
  const { position: peak } = peakOf(lifetimes);
  const lastUse = new Map(lifetimes.map(({ buffer, last }) => [buffer, last]));
  const inserted = new Map<Node, Call[]>();
  /** The copy of a buffer that its readers use from a node on. */
  const copyFrom = new Map<Buffer, { readonly reader: Node; readonly copy: Buffer }>();
  for (const { buffer, first, last } of lifetimes) {
    if (first >= peak || last <= peak || plannedBytes(buffer) < minBytes) continue;
    const producer = producerOf(program, buffer);
    if (!producer) continue;
    const { readers } = program.uses(buffer);
    const reader = readers.find((node) => indexOf(node) > peak);
    const before = readers.findLast((node) => indexOf(node) < peak);
    const isReadAtPeak = readers.some((node) => indexOf(node) === peak);
    if (!reader || isReadAtPeak) continue;
    if (indexOf(reader) - (before ? indexOf(before) : first) < minRematerializedGap) continue;
    const isLive = (input: Buffer): boolean => (lastUse.get(input) ?? 0) >= indexOf(reader);
    if (!areInputsAvailable(program, producer, reader, isLive)) continue;
    const { call } = producer.node;
    const copies = new Map<Buffer, Buffer>();
    const work = mapSlices(call.work, (slice) => copyOf(program, slice, producer.written, copies));
    inserted.set(reader, [...(inserted.get(reader) ?? []), { ...call, isRematerialized: true, work }]);
    const copy = copies.get(buffer);
    if (copy) copyFrom.set(buffer, { reader, copy });
  }
  const changed = new Set(inserted.keys());
  for (const [buffer, { reader }] of copyFrom)
    for (const node of accessorsOf(program, buffer)) if (!node.isBefore(reader)) changed.add(node);
  return new Map(
    [...changed].map((node): [Node, Edit] => {
      const toCopy = (slice: BufferSlice): BufferSlice => {
        const { reader, copy } = copyFrom.get(slice.buffer) ?? {};
        return reader && copy && !node.isBefore(reader) ? { ...slice, buffer: copy } : slice;
      };
      const call = { ...node.call, work: mapSlices(node.call.work, toCopy) };
      return [node, { inserted: inserted.get(node) ?? [], call }];
    }),
  );
}

function accessorsOf(program: Program, buffer: Buffer): readonly Node[] {
  const { writers, readers } = program.uses(buffer);
  return [...writers, ...readers];
}

interface Producer {
  readonly node: Node;
  /** All buffers that the call writes. */
  readonly written: ReadonlySet<Buffer>;
}

/** The row call that is the only writer of a buffer and writes nothing persistent. */
function producerOf(program: Program, buffer: Buffer): Producer | undefined {
  const [node, ...others] = program.uses(buffer).writers;
  if (!node || others.length > 0 || node.call.work.kind !== "row" || node.call.isRematerialized)
    return undefined;
  const outputs = node.accesses.filter(({ writes }) => writes);
  const written = new Set(outputs.map(({ slice }) => slice.buffer));
  const isPure = outputs.every(({ slice, reads }) => !reads && !slice.buffer.storage);
  return isPure && written.has(buffer) ? { node, written } : undefined;
}

/** True if the inputs of a call are unchanged at a later node, and live there anyway. */
function areInputsAvailable(
  program: Program,
  { node }: Producer,
  reader: Node,
  isLive: (input: Buffer) => boolean,
): boolean {
  return node.accesses
    .filter(({ reads }) => reads)
    .every(({ slice: { buffer } }) => {
      const isChanged = program
        .uses(buffer)
        .writers.some((writer) => node.isBefore(writer) && writer.isBefore(reader));
      return !isChanged && (buffer.storage !== undefined || isLive(buffer));
    });
}

function copyOf(
  program: Program,
  slice: BufferSlice,
  written: ReadonlySet<Buffer>,
  copies: Map<Buffer, Buffer>,
): BufferSlice {
  if (!written.has(slice.buffer)) return slice;
  const { bytes, label } = slice.buffer;
  const copy = copies.get(slice.buffer) ?? program.makeBuffer(bytes, `${label} again`);
  copies.set(slice.buffer, copy);
  return { ...slice, buffer: copy };
}
