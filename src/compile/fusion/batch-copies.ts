/**
 * Batched copies: copies and conversions of one shape, such as those of equal layers, are one launch on a GPU. Their operands need a
 * common stride: persistent memory has one or not; the step buffers of all members become slices of one buffer.
 */

import { factsOf, inputDtypes, iterateElements } from "../../ir/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { literalKey } from "../../units/index.js";
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
import { type Location, relocateCalls } from "../program/relocation.js";
import { type BatchStride, batchSlice, findBatchStride } from "./batch-slices.js";
import { groupCalls } from "./group-calls.js";

/** A copy, with a key that copies of the same shape share. */
interface CopyItem {
  readonly call: Call;
  readonly work: RowCall;
  readonly key: string;
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
  const moved = new Map<Buffer, Location>();
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
      return areFree && stridesOf(all.sort(byPersistentOffset)) !== undefined;
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
  const { isElementwise, usesPosition, readsAtIndex, hasDraws } = factsOf(kernel);
  const [from, to] = operands;
  return (
    iteration.kind === "elements" &&
    iteration.elements > 0 &&
    isElementwise &&
    !usesPosition &&
    !readsAtIndex &&
    !hasDraws &&
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

/** The strides of a group's operands; undefined if the slices of an operand have none. */
function stridesOf(members: readonly CopyItem[]): readonly BatchStride[] | undefined {
  const strides = members[0]?.work.operands.map(({ size }, index) => {
    const stride = findBatchStride(slicesOf(members, index), elementBytes(members[0]?.work, index));
    return stride && stride.strideBytes >= size ? stride : undefined;
  });
  const found = strides?.flatMap((stride) => stride ?? []);
  return found?.length === strides?.length ? found : undefined;
}

function slicesOf(members: readonly CopyItem[], operand: number): readonly BufferSlice[] {
  return members.flatMap(({ work }) => work.operands[operand] ?? []);
}

function elementBytes(work: RowCall | undefined, operand: number): number {
  const dtype = work
    ? [...work.kernel.inputs, ...work.kernel.outputs.map((output) => output.dtype)][operand]
    : undefined;
  return inputDtypes[dtype ?? "f32"].bytes;
}

/** The members' work in one call; the step buffers of each operand become slices of a new one. */
function mergeCopies(program: Program, unsorted: readonly CopyItem[], moved: Map<Buffer, Location>): Call {
  const members = [...unsorted].sort(byPersistentOffset);
  const strides = stridesOf(members) ?? [];
  const [{ work }] = members as [CopyItem];
  const operands = strides.map((stride, index) =>
    batchSlice(program, slicesOf(members, index), stride, moved),
  );
  const { outer, row } = work.iteration;
  const batchStrides = strides.map(({ strideBytes }, index) => strideBytes / elementBytes(work, index));
  const axes = [{ size: members.length, strides: batchStrides }, ...outer, row];
  return {
    op: `${members[0]?.call.op ?? "copy"} of ${members.length}`,
    phase: latestPhase(members.map(({ call }) => call)),
    work: {
      ...work,
      operands,
      iteration: iterateElements(
        axes.map(({ size }) => size),
        strides.map((_, index) => axes.map((axis) => axis.strides[index] ?? 0)),
      ),
    },
  };
}
