/**
 * Batched copies: copies and conversions of one shape, such as those of equal layers, are one launch on a GPU. Their operands need a
 * common stride: persistent memory has one or not; the step buffers of all members become slices of one buffer.
 */

import { dtypes, factsOf, iterateElements } from "../../ir/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import { alignment, type Runtime } from "../../runtime/index.js";
import { alignUp, literalKey } from "../../units/index.js";
import { maxBatchedCopyBytes } from "../cost-model.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  latestPhase,
  type Node,
  type Program,
  type RowCall,
} from "../program/program.js";
import { relocateCalls } from "../program/relocation.js";
import { groupCalls } from "./group-calls.js";

/** A copy, with a key that copies of the same shape share. */
interface CopyItem {
  readonly call: Call;
  readonly work: RowCall;
  readonly key: string;
}

/** An operand of a group: the first member's slice, and the stride to the next member's. */
interface StridedOperand {
  readonly slice: BufferSlice;
  readonly strideBytes: number;
}

export function batchCopies(runtime: Runtime, program: Program): void {
  if (!capabilitiesOf(runtime).combinesKernels) return;
  const kernels = new Map<object, number>();
  const kernelNumber = (kernel: object): number => {
    const number = kernels.get(kernel) ?? kernels.size;
    kernels.set(kernel, number);
    return number;
  };
  /** The group whose common buffer a step buffer becomes part of: it cannot be part of two. */
  const claims = new Map<Buffer, Node>();
  const moved = new Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>();
  groupCalls<CopyItem>(program, {
    itemOf(call) {
      const { work } = call;
      if (work.kind !== "row" || !isCopy(work)) return undefined;
      const slices = work.operands.map(({ buffer, size }) => [size, buffer.storage ? buffer.id : "step"]);
      return { call, work, key: literalKey([kernelNumber(work.kernel), work.iteration, slices]) };
    },
    // The earliest first: a batch is then as long as it can be.
    rank: (groups, { key }) => groups.filter(({ items }) => items[0]?.key === key),
    canJoin({ node, items }, item) {
      const all = [...items, item];
      const areFree = stepBuffersOf(all).every((buffer) => (claims.get(buffer) ?? node) === node);
      return areFree && operandsOf(all.sort(byPersistentOffset)) !== undefined;
    },
    onJoin({ node, items }) {
      for (const buffer of stepBuffersOf(items)) claims.set(buffer, node);
    },
    merge: ({ items }) => mergeCopies(program, items, moved),
  });
  relocateCalls(program, moved);
}

/** A small elementwise move from one buffer to another. */
function isCopy({ kernel, iteration, operands, scalars }: RowCall): boolean {
  const { isElementwise, usesPosition, readsAtIndex } = factsOf(kernel);
  const [from, to] = operands;
  return (
    iteration.kind === "elements" &&
    iteration.elements > 0 &&
    isElementwise &&
    !usesPosition &&
    !readsAtIndex &&
    scalars.length === 0 &&
    operands.length === 2 &&
    from?.buffer !== to?.buffer &&
    operands.every(({ buffer, offset, size }) =>
      buffer.storage
        ? size <= maxBatchedCopyBytes
        : offset === 0 && size === buffer.bytes && size <= maxBatchedCopyBytes,
    )
  );
}

function stepBuffersOf(members: readonly CopyItem[]): readonly Buffer[] {
  return members.flatMap(({ work }) =>
    work.operands.flatMap(({ buffer }) => (buffer.storage ? [] : [buffer])),
  );
}

function byPersistentOffset(a: CopyItem, b: CopyItem): number {
  const offset = ({ work }: CopyItem): number =>
    work.operands.find(({ buffer }) => buffer.storage)?.offset ?? 0;
  return offset(a) - offset(b);
}

/** The operands of a group in order; undefined if an operand's slices do not have one stride. */
function operandsOf(members: readonly CopyItem[]): readonly StridedOperand[] | undefined {
  const operands = members[0]?.work.operands.map((slice, index): StridedOperand | undefined => {
    const slices = members.flatMap(({ work }) => work.operands[index] ?? []);
    if (!slice.buffer.storage) {
      // Each has a buffer of its own, which becomes a slice of a common one.
      const areOwn = new Set(slices.map(({ buffer }) => buffer)).size === slices.length;
      return areOwn ? { slice, strideBytes: alignUp(slice.size, alignment) } : undefined;
    }
    const strideBytes = (slices[1]?.offset ?? 0) - slice.offset;
    const areEqual = slices.every(({ offset }, member) => offset === slice.offset + member * strideBytes);
    const bytes = elementBytes(members[0]?.work, index);
    return areEqual && strideBytes >= slice.size && strideBytes % bytes === 0
      ? { slice, strideBytes }
      : undefined;
  });
  const strided = operands?.flatMap((operand) => operand ?? []);
  return strided?.length === operands?.length ? strided : undefined;
}

function elementBytes(work: RowCall | undefined, operand: number): number {
  const dtype = work
    ? [...work.kernel.inputs, ...work.kernel.outputs.map((output) => output.dtype)][operand]
    : undefined;
  return dtypes[dtype ?? "f32"].bytes;
}

/** The members' work in one call; the step buffers of each operand become slices of a new one. */
function mergeCopies(
  program: Program,
  unsorted: readonly CopyItem[],
  moved: Map<Buffer, { readonly buffer: Buffer; readonly offset: number }>,
): Call {
  const members = [...unsorted].sort(byPersistentOffset);
  const strided = operandsOf(members) ?? [];
  const [{ work }] = members as [CopyItem];
  const operands = strided.map(({ slice, strideBytes }, index): BufferSlice => {
    const size = (members.length - 1) * strideBytes + slice.size;
    if (slice.buffer.storage) return { ...slice, size };
    const buffer = program.makeBuffer(size, slice.buffer.label);
    for (const [member, { work: copy }] of members.entries()) {
      const memberBuffer = copy.operands[index]?.buffer;
      if (memberBuffer) moved.set(memberBuffer, { buffer, offset: member * strideBytes });
    }
    return { buffer, offset: 0, size };
  });
  const { outer, row } = work.iteration;
  const strides = strided.map(({ strideBytes }, index) => strideBytes / elementBytes(work, index));
  const axes = [{ size: members.length, strides }, ...outer, row];
  return {
    op: `${members[0]?.call.op ?? "copy"} of ${members.length}`,
    phase: latestPhase(members.map(({ call }) => call)),
    work: {
      ...work,
      operands,
      iteration: iterateElements(
        axes.map(({ size }) => size),
        strided.map((_, index) => axes.map((axis) => axis.strides[index] ?? 0)),
      ),
    },
  };
}
