/**
 * Weight copies: the casts of weights at the start of a step, such as those of f32 weights to bf16, are left out. Their results live in
 * persistent memory, and the kernel that updates the weights stores them for the next call. `execute/weight-copies.ts` refreshes a copy
 * before a step that reads it, if other work may have written the weights.
 */

import { factsOf, type RowKernel } from "../../ir/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import { alignment, type PersistentStorage, type Runtime } from "../../runtime/index.js";
import { alignUp } from "../../units/index.js";
import { comboLimits } from "../cost-model.js";
import { castTo, elementBytes, sliceOfCopy, type WeightCopies } from "../execute/weight-copies.js";
import { combine, rowsOf } from "../fusion/vertical/combine.js";
import { fusionNodeOf } from "../fusion/vertical/fusion-node.js";
import { joinNames } from "../fusion/vertical/kernel-memo.js";
import { type Cast, castOf } from "../program/casts.js";
import { isFlat, sliceFlat } from "../program/flat.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  type ConvertedWeights,
  type Node,
  type Program,
  type RowCall,
  type Schedule,
} from "../program/program.js";
import { relocateCalls } from "../program/relocation.js";
import { areDisjoint, extentOf } from "../program/slices.js";
import { isUnchangedBefore, isWriting, isWrittenOnce } from "../program/uses.js";
import { type Lifetime, lifetimesOf, lowerBound, plannedBytes } from "../schedule/liveness.js";
import { scheduleCalls } from "../schedule/schedule.js";

export function keepWeightCopies(runtime: Runtime, program: Program, copies: WeightCopies): void {
  for (const node of program.nodes) {
    const cast = castOf(node);
    if (cast && isOfWeights(program, cast)) keepCopy(runtime, program, cast, copies);
  }
}

/** True for a cast of weights that the step has not changed before. */
function isOfWeights(program: Program, { node, from, to }: Cast): boolean {
  const { storage } = from.buffer;
  const areWeights =
    storage?.kind === "persistent" && (storage as PersistentStorage).home.label === "weights";
  return areWeights && isUnchangedBefore(program, from.buffer, node) && isWrittenOnce(program, to.buffer);
}

function keepCopy(runtime: Runtime, program: Program, cast: Cast, copies: WeightCopies): void {
  const { node, from, to } = cast;
  const { kernel } = cast.work;
  const isKept = ({ source, offset }: ConvertedWeights): boolean =>
    (offset + convertedBytes(kernel, from.offset - source.offset)) % alignment === 0 &&
    updatesOf(runtime, program, cast, source) !== undefined;
  let copy = copies.find(from, kernel, isKept);
  if (!copy) {
    const source = withNeighbours(runtime, cast.from, kernel);
    // The weights are aligned as in the cast's own result, so that GEMMs can load them in the same way.
    const before = convertedBytes(kernel, from.offset - source.offset);
    const copied = { source, kernel, offset: alignUp(before, alignment) - before };
    const bytes = copied.offset + convertedBytes(kernel, source.size);
    if (!isKept(copied) || raisesPeakWithout(runtime, program, to.buffer, bytes)) return;
    copy = copies.place(copied, bytes, `${kernel.outputs[0]?.dtype} copy of ${from.buffer.label}`);
  }
  const updates = copy?.copyOf && updatesOf(runtime, program, cast, copy.copyOf.source);
  if (!copy || !updates) return;
  const storing = updates.map((update) => storingCalls(runtime, update, copy));
  if (!storing.every((calls) => calls !== undefined)) return;
  program.remove(node);
  const { buffer, offset } = sliceOfCopy(copy, from);
  relocateCalls(program, new Map([[to.buffer, { buffer, offset }]]));
  for (const [index, update] of updates.entries()) {
    for (const call of storing[index] ?? []) program.insertBefore(update.node, call);
    program.remove(update.node);
  }
}

function convertedBytes(kernel: RowKernel, bytes: number): number {
  const { read, written } = elementBytes(kernel);
  return (bytes / read) * written;
}

/**
 * Weights with their padding, and with the rest of their region before and after them if that takes at most a granule: then the update of
 * all of them stays one launch.
 */
function withNeighbours(
  { device }: Runtime,
  { buffer, offset, size }: BufferSlice,
  kernel: RowKernel,
): BufferSlice {
  const { read, written } = elementBytes(kernel);
  const maxBytes = (device.granularity / written) * read;
  const start = offset <= maxBytes ? 0 : offset;
  const whole = buffer.bytes - (buffer.bytes % read);
  const end = whole - offset - size <= maxBytes ? whole : Math.min(whole, alignUp(offset + size, alignment));
  return { buffer, offset: start, size: end - start };
}

/** A call that updates weights of a copy. */
interface Update {
  readonly node: Node;
  readonly work: RowCall;
  /** All of its weights, and those that the copy has. */
  readonly written: BufferSlice;
  readonly copied: BufferSlice;
}

/**
 * The updates of weights that a copy of `source` would have. Undefined if a kernel that updates them cannot store the copy, or if the copy
 * is read after it. A kernel that updates other weights too is split. That costs launches, but the launch of the cast is gone.
 */
function updatesOf(
  runtime: Runtime,
  program: Program,
  cast: Cast,
  source: BufferSlice,
): readonly Update[] | undefined {
  const updates: Update[] = [];
  for (const node of program.nodes) {
    if (!node.accesses.some((access) => isWriting(access) && overlaps(access.slice, source))) continue;
    const update = updateOf(node, cast, source);
    if (!update || updates.some((other) => overlaps(other.written, update.written))) return undefined;
    updates.push(update);
  }
  const { readers } = program.uses(cast.to.buffer);
  if (updates.some(({ node }) => readers.some((reader) => !reader.isBefore(node)))) return undefined;
  const cuts = updates.reduce((sum, update) => sum + partsOf(update).length - 1, 0);
  return (cuts - 1) * comboLimits(runtime.device).launchTraffic <= source.size ? updates : undefined;
}

function overlaps(a: BufferSlice, b: BufferSlice): boolean {
  return !areDisjoint(extentOf(a), extentOf(b));
}

function updateOf(node: Node, cast: Cast, source: BufferSlice): Update | undefined {
  const { work } = node.call;
  if (node.calls.length > 1 || work.kind !== "row") return undefined;
  const { inputs, outputs } = work.kernel;
  const [written, ...others] = work.operands.slice(inputs.length).filter((slice) => overlaps(slice, source));
  if (!written || others.length > 0) return undefined;
  const dtype = outputs[work.operands.indexOf(written, inputs.length) - inputs.length]?.dtype;
  if (dtype !== cast.work.kernel.inputs[0]) return undefined;
  const copied = intersectionOf(written, source);
  const isStorable = isFlat(work) || (copied.size === written.size && visitsAll(work, written, cast));
  return isStorable ? { node, work, written, copied } : undefined;
}

/** True for an elementwise kernel that visits each of some weights once, in any order. */
function visitsAll({ kernel, iteration }: RowCall, written: BufferSlice, cast: Cast): boolean {
  const { isElementwise, usesPosition } = factsOf(kernel);
  const bytes = iteration.elements * elementBytes(cast.work.kernel).read;
  return isElementwise && !usesPosition && bytes === written.size;
}

/** The bytes of a slice that another slice has too. */
function intersectionOf(slice: BufferSlice, other: BufferSlice): BufferSlice {
  const [a, b] = [extentOf(slice), extentOf(other)];
  const from = Math.max(a.from, b.from);
  return { ...slice, offset: slice.offset + from - a.from, size: Math.min(a.to, b.to) - from };
}

/** The weights of an update in order: those of the copy, and others before and after them. */
function partsOf({ written, copied }: Update): readonly BufferSlice[] {
  const end = copied.offset + copied.size;
  const parts = [
    { ...written, size: copied.offset - written.offset },
    copied,
    { ...written, offset: end, size: written.offset + written.size - end },
  ];
  return parts.filter(({ size }) => size > 0);
}

/** The calls of an update that also stores a copy; undefined if its kernel cannot store more. */
function storingCalls(runtime: Runtime, update: Update, copy: Buffer): readonly Call[] | undefined {
  const { node, work, written, copied } = update;
  const { call } = node;
  const bytes = written.size / work.iteration.elements;
  const parts = partsOf(update);
  const calls = parts.map((part): Call | undefined => {
    const start = (part.offset - written.offset) / bytes;
    const own = parts.length === 1 ? work : sliceFlat(work, start, part.size / bytes);
    if (part !== copied) return { ...call, work: own };
    const { kernel } = copy.copyOf ?? {};
    const cast = kernel && castTo(copy, kernel, part);
    const members = [own, cast].flatMap((of) => (of && fusionNodeOf({ ...call, work: of })) ?? []);
    const draft = members.length === 2 ? combine(members, () => true, capabilitiesOf(runtime)) : undefined;
    const op = joinNames([call.op, copy.label.split(" of ")[0] ?? copy.label]);
    return draft && { ...call, op, work: rowsOf(draft) };
  });
  return calls.every((one) => one !== undefined) ? calls : undefined;
}

/** True if the step needs more memory with a copy of some bytes than with a buffer: if the buffer is not live when most memory is. */
function raisesPeakWithout(
  { device }: Runtime,
  { calls }: Program,
  buffer: Buffer,
  copyBytes: number,
): boolean {
  const lifetimes = lifetimesOf(scheduleCalls(calls, { streams: 0, lag: 0 }));
  const others = lifetimes.filter((lifetime) => lifetime.buffer !== buffer);
  return lowerBound(others) + copyBytes > lowerBound(lifetimes) + device.granularity;
}

/** True if a planned step needs more memory than with casts at its start, whose results live until they are last read. */
export function raisesPeak({ device }: Runtime, schedule: Schedule, copies: WeightCopies): boolean {
  const calls = schedule.calls.map(({ call }) => call);
  const added = copies.addedBy(calls);
  if (added.length === 0) return false;
  const lastReads = new Map<Buffer, number>();
  for (const [position, call] of calls.entries()) {
    for (const { slice, reads } of accessesOf(call)) if (reads) lastReads.set(slice.buffer, position);
  }
  const lifetimes = lifetimesOf(schedule);
  const withCasts = added.map((buffer): Lifetime => ({ buffer, first: 0, last: lastReads.get(buffer) ?? 0 }));
  const bytes = added.reduce((sum, buffer) => sum + plannedBytes(buffer), 0);
  // Regions are rounded up to granules.
  return lowerBound(lifetimes) + bytes > lowerBound([...lifetimes, ...withCasts]) + device.granularity;
}
