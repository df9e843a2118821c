/**
 * Copies and conversions of one form, as equal layers have them, are one launch, on a GPU: there a launch costs more than most
 * of them. What they read and write has to lie at equal steps: in persistent memory it does or does not; step memory is laid
 * out so, the members' buffers becoming one.
 */

import { dtypes, factsOf, iterateElements } from "../../ir/index.js";
import { alignment, type Runtime } from "../../runtime/index.js";
import { alignUp, literalKey } from "../../units/index.js";
import { dependsDirectly, maxFusionDistance, type Node, Order } from "../program/dependency-graph.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  latestPhase,
  mapSlices,
  type RowCall,
} from "../program/program.js";
import { bufferMaker } from "../program/uses.js";

/** Above this a copy keeps a GPU busy by itself, and waiting for others only holds memory. */
const maxBytes = 4 * 2 ** 20;

interface Member {
  readonly node: Node;
  readonly call: Call;
  readonly work: RowCall;
}

/** Where a group's members have an operand: the first one's place, and how far behind it the next one has its own. */
interface Row {
  readonly slice: BufferSlice;
  readonly stepBytes: number;
}

export function batchCopies(calls: readonly Call[], runtime: Runtime): readonly Call[] {
  if (runtime.device.kind !== "cuda") return calls;
  const order = new Order();
  const groups = new Map<string, Member[][]>();
  const kernels = new Map<object, number>();
  /** The group of which a buffer becomes a piece of memory: it can't be one of two. */
  const claims = new Map<Buffer, Member[]>();
  for (const call of calls) {
    const { node } = order.add(call);
    if (call.work.kind !== "row" || !isMove(call.work)) continue;
    const { work } = call;
    kernels.set(work.kernel, kernels.get(work.kernel) ?? kernels.size);
    const key = literalKey([
      kernels.get(work.kernel),
      work.iteration,
      work.operands.map(({ buffer, size }) => [size, buffer.storage ? buffer.id : "step"]),
    ]);
    const alike = groups.get(key) ?? [];
    groups.set(key, alike);
    const member = { node, call, work };
    const joined = alike.find(
      (group) => areFree([...group, member], claims, group) && join(order, group, member),
    );
    if (!joined) alike.push([member]);
    else for (const buffer of stepBuffersOf(joined)) claims.set(buffer, joined);
  }
  const makeBuffer = bufferMaker(calls);
  const moves = new Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>();
  const made = new Map<Node, Call>();
  for (const members of [...groups.values()].flat()) {
    const [first] = members;
    if (first && members.length > 1) made.set(first.node, callOf(members, makeBuffer, moves));
  }
  if (made.size === 0) return calls;
  const moved = (slice: BufferSlice): BufferSlice => {
    const move = moves.get(slice.buffer);
    return move ? { ...slice, buffer: move.buffer, offset: slice.offset + move.offset } : slice;
  };
  return order.nodes.map(
    (node) => made.get(node) ?? { ...node.call, work: mapSlices(node.call.work, moved) },
  );
}

/** Elements from one place to another, each by itself. */
function isMove({ kernel, iteration, operands, scalars }: RowCall): boolean {
  const { isElementwise, usesPlace, readsAtIndex } = factsOf(kernel);
  const [from, to] = operands;
  return (
    iteration.kind === "elements" &&
    iteration.elements > 0 &&
    isElementwise &&
    !usesPlace &&
    !readsAtIndex &&
    scalars.length === 0 &&
    operands.length === 2 &&
    from?.buffer !== to?.buffer &&
    operands.every(({ buffer, offset, size }) =>
      buffer.storage ? size <= maxBytes : offset === 0 && size === buffer.bytes && size <= maxBytes,
    )
  );
}

function stepBuffersOf(members: readonly Member[]): readonly Buffer[] {
  return members.flatMap(({ work }) =>
    work.operands.flatMap(({ buffer }) => (buffer.storage ? [] : [buffer])),
  );
}

/** Do all of the members' buffers belong to no group, or to this one? */
function areFree(
  members: readonly Member[],
  claims: ReadonlyMap<Buffer, Member[]>,
  group: Member[],
): boolean {
  return stepBuffersOf(members).every((buffer) => (claims.get(buffer) ?? group) === group);
}

/** Makes a call the next member of a group, where both can run at one place and their memory allows it. */
function join(order: Order, group: Member[], member: Member): boolean {
  const [first] = group;
  if (!first || Math.abs(member.node.position - first.node.position) > maxFusionDistance) return false;
  const joined = [...group, member].sort(byPersistentPlace);
  if (dependsDirectly(member.node, first.node) || !rowsOf(joined)) return false;
  const place = order.fusionPosition(first.node, member.node);
  if (place === undefined) return false;
  order.join(first.node, member.node, place);
  group.push(member);
  return true;
}

function byPersistentPlace(a: Member, b: Member): number {
  const place = ({ work }: Member): number => work.operands.find(({ buffer }) => buffer.storage)?.offset ?? 0;
  return place(a) - place(b);
}

/** How the members' operands lie, the members in order; nothing where that is not at equal steps, each behind the one before. */
function rowsOf(members: readonly Member[]): readonly Row[] | undefined {
  const rows = members[0]?.work.operands.map((slice, index): Row | undefined => {
    const slices = members.flatMap(({ work }) => work.operands[index] ?? []);
    if (!slice.buffer.storage) {
      // Each has a buffer of its own, which becomes a piece of a common one.
      const areOwn = new Set(slices.map(({ buffer }) => buffer)).size === slices.length;
      return areOwn ? { slice, stepBytes: alignUp(slice.size, alignment) } : undefined;
    }
    const stepBytes = (slices[1]?.offset ?? 0) - slice.offset;
    const areEqual = slices.every(({ offset }, member) => offset === slice.offset + member * stepBytes);
    const bytes = elementBytes(members[0]?.work, index);
    return areEqual && stepBytes >= slice.size && stepBytes % bytes === 0 ? { slice, stepBytes } : undefined;
  });
  const known = rows?.flatMap((row) => row ?? []);
  return known?.length === rows?.length ? known : undefined;
}

function elementBytes(work: RowCall | undefined, operand: number): number {
  const dtype = work
    ? [...work.kernel.inputs, ...work.kernel.outputs.map((one) => one.dtype)][operand]
    : undefined;
  return dtypes[dtype ?? "f32"].bytes;
}

/** The members' work in one call; their step buffers become pieces of a new one each. */
function callOf(
  unsorted: readonly Member[],
  makeBuffer: ReturnType<typeof bufferMaker>,
  moves: Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>,
): Call {
  const members = [...unsorted].sort(byPersistentPlace);
  const rows = rowsOf(members) ?? [];
  const [{ work }] = members as [Member];
  const operands = rows.map(({ slice, stepBytes }, index): BufferSlice => {
    const size = (members.length - 1) * stepBytes + slice.size;
    if (slice.buffer.storage) return { ...slice, size };
    const buffer = makeBuffer(size, slice.buffer.label);
    for (const [member, one] of members.entries()) {
      const own = one.work.operands[index]?.buffer;
      if (own) moves.set(own, { buffer, offset: member * stepBytes });
    }
    return { buffer, offset: 0, size };
  });
  const { outer, row } = work.iteration;
  const steps = rows.map(({ stepBytes }, index) => stepBytes / elementBytes(work, index));
  const axes = [{ size: members.length, strides: steps }, ...outer, row];
  return {
    op: `${members[0]?.call.op ?? "copy"} of ${members.length}`,
    phase: latestPhase(members.map(({ call }) => call)),
    work: {
      ...work,
      operands,
      iteration: iterateElements(
        axes.map(({ size }) => size),
        rows.map((_, index) => axes.map(({ strides }) => strides[index] ?? 0)),
      ),
    },
  };
}
