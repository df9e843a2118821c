/**
 * Rematerialisation: a value that is live across the memory peak is recomputed after it, if a row kernel made it from inputs that are
 * still live there. Vertical fusion can then compute it inside its reader.
 */

import { maxRematerializeRounds, minRematerializedGap, minRematerializedShare } from "../cost-model.js";
import { singleOutput } from "../fusion/vertical/single-output.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  mapSlices,
  type Node,
  type Program,
} from "../program/program.js";
import { isReading, isWriting } from "../program/uses.js";
import { lifetimesOf, peakOf, plannedBytes } from "../schedule/liveness.js";

export interface RematerializeLimits {
  /** The smallest value that is recomputed; default: a share of the peak. */
  readonly minBytes?: number;
  /** The share by which a round has to lower the peak; default: any. */
  readonly minGain?: number;
}

export interface OutputLimits extends Required<RematerializeLimits> {
  /** False if it takes too long to compute a value again. */
  isCheap(value: Recomputed): boolean;
}

/** Runs whole calls again. Returns the nodes that compute values again. */
export function rematerialize(
  program: Program,
  { minBytes, minGain = 0 }: RematerializeLimits = {},
): readonly Node[] {
  const inserted: Node[] = [];
  let bytes = peakBytesOf(program.calls);
  for (let round = 0; round < maxRematerializeRounds; round++) {
    const values = valuesAtPeak(program, minBytes ?? minRematerializedShare * bytes, wholeCall);
    const edits = editsFor(program, values);
    const nextBytes = peakBytesOf(callsWith(program, edits));
    if (nextBytes >= bytes || nextBytes > (1 - minGain) * bytes) break;
    inserted.push(...apply(program, edits));
    bytes = nextBytes;
  }
  return inserted;
}

/**
 * Computes single outputs of calls again: as few as lower the peak by a share, or none. Those that are read again last are the first
 * choice: their memory is free for longest. Returns the nodes that compute values again.
 */
export function rematerializeOutputs(
  program: Program,
  { minBytes, minGain, isCheap }: OutputLimits,
): readonly Node[] {
  const values = valuesAtPeak(program, minBytes, outputAlone)
    .filter(isCheap)
    .toSorted((a, b) => (a.reader.isBefore(b.reader) ? 1 : -1));
  const maxBytes = (1 - minGain) * peakBytesOf(program.calls);
  const isEnough = (count: number): boolean =>
    peakBytesOf(callsWith(program, editsFor(program, values.slice(0, count)))) <= maxBytes;
  if (!isEnough(values.length)) return [];
  // With every further value the peak falls or stays.
  let [tooFew, enough] = [0, values.length];
  while (enough - tooFew > 1) {
    const middle = (tooFew + enough) >> 1;
    if (isEnough(middle)) enough = middle;
    else tooFew = middle;
  }
  return apply(program, editsFor(program, values.slice(0, enough)));
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

/** A value that is live at the peak, and the call that computes it again before its first reader after the peak. */
export interface Recomputed {
  readonly buffer: Buffer;
  readonly copy: Buffer;
  readonly reader: Node;
  /** It writes the copy. */
  readonly call: Call;
}

/** How to compute a value again where some buffers are available; undefined if that is not possible. */
type Recompute = (value: Produced, isAvailable: (buffer: Buffer) => boolean) => Call | undefined;

interface Produced {
  readonly buffer: Buffer;
  /** The only node that writes the buffer: a row call. */
  readonly producer: Node;
}

/** The values of at least `minBytes` that are live at the peak and can be recomputed after it. */
function valuesAtPeak(program: Program, minBytes: number, recompute: Recompute): readonly Recomputed[] {
  const { nodes } = program;
  const indices = new Map(nodes.map((node, index) => [node, index]));
  const indexOf = (node: Node): number => indices.get(node) ?? 0;
  const lifetimes = lifetimesOf(inOrder(program.calls));
  const { position: peak } = peakOf(lifetimes);
  const lastUse = new Map(lifetimes.map(({ buffer, last }) => [buffer, last]));
  return lifetimes.flatMap(({ buffer, first, last }): Recomputed | [] => {
    if (first >= peak || last <= peak || plannedBytes(buffer) < minBytes) return [];
    const producer = producerOf(program, buffer);
    if (!producer) return [];
    const { readers } = program.uses(buffer);
    const reader = readers.find((node) => indexOf(node) > peak);
    const before = readers.findLast((node) => indexOf(node) < peak);
    const isReadAtPeak = readers.some((node) => indexOf(node) === peak);
    if (!reader || isReadAtPeak) return [];
    if (indexOf(reader) - (before ? indexOf(before) : first) < minRematerializedGap) return [];
    const isAvailable = (input: Buffer): boolean =>
      !isChangedBetween(program, input, producer, reader) &&
      (input.storage !== undefined || (lastUse.get(input) ?? 0) >= indexOf(reader));
    const again = recompute({ buffer, producer }, isAvailable);
    if (!again) return [];
    const copies = new Map<Buffer, Buffer>();
    const written = new Set(accessesOf(again).flatMap(({ slice, writes }) => (writes ? slice.buffer : [])));
    const work = mapSlices(again.work, (slice) => copyOf(program, slice, written, copies));
    const copy = copies.get(buffer);
    return copy ? { buffer, copy, reader, call: { ...again, isRematerialized: true, work } } : [];
  });
}

/** The row call that is the only writer of a buffer. */
function producerOf(program: Program, buffer: Buffer): Node | undefined {
  const [node, ...others] = program.uses(buffer).writers;
  const isOnlyRun = node && others.length === 0 && !node.call.isRematerialized;
  return isOnlyRun && node.call.work.kind === "row" ? node : undefined;
}

/** All of the call, if it writes nothing persistent. */
const wholeCall: Recompute = ({ producer: { call, accesses } }, isAvailable) => {
  const isPure = accesses.filter(isWriting).every(({ slice, reads }) => !reads && !slice.buffer.storage);
  return isPure && accesses.filter(isReading).every(({ slice }) => isAvailable(slice.buffer))
    ? call
    : undefined;
};

/** Only what computes the value, from inputs and other outputs of the call. */
const outputAlone: Recompute = ({ buffer, producer: { call } }, isAvailable) => {
  const work = call.work.kind === "row" ? singleOutput(call.work, buffer, isAvailable) : undefined;
  const again = work && { ...call, work };
  return again && accessesOf(again).every(({ slice, reads }) => !reads || isAvailable(slice.buffer))
    ? again
    : undefined;
};

function isChangedBetween(program: Program, buffer: Buffer, after: Node, before: Node): boolean {
  return program.uses(buffer).writers.some((writer) => after.isBefore(writer) && writer.isBefore(before));
}

/** Inserts the calls before the readers, which read the copies from there on. */
function editsFor(program: Program, values: readonly Recomputed[]): Edits {
  const inserted = new Map<Node, Call[]>();
  const copyFrom = new Map(values.map((value) => [value.buffer, value]));
  for (const { reader, call } of values) inserted.set(reader, [...(inserted.get(reader) ?? []), call]);
  const changed = new Set(inserted.keys());
  for (const { buffer, reader } of values)
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
