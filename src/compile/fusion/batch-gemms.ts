/**
 * Batched GEMMs: independent GEMMs of one shape, such as the query, key and value projections of one input, are one batched GEMM. Each
 * operand needs a common stride: slices of one buffer have one or not; step buffers of their own become slices of a new buffer. Inputs are
 * moved so only if one call writes all of them: buffers of different calls would have to live as long as all of them together.
 */

import { dtypes } from "../../ir/index.js";
import { capabilitiesOf, isProjection } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { literalKey } from "../../units/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { busyGemmElements, maxBatchedWaves } from "../cost-model.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  type GemmCall,
  type Node,
  type Program,
} from "../program/program.js";
import { type Location, relocateCalls } from "../program/relocation.js";
import { type BatchStride, batchSlice, findBatchStride } from "./batch-slices.js";
import { groupCalls } from "./group-calls.js";

type Problem = GemmCall["problem"];

/** A GEMM, with a key that GEMMs of the same shape and layouts share. */
interface GemmItem {
  readonly problem: Problem;
  readonly key: string;
}

const operandNames = ["a", "b", "c", "bias"] as const;
const inputNames = ["a", "b", "bias"] as const;
type OperandName = (typeof operandNames)[number];
type Batch = Readonly<Partial<Record<OperandName, BatchStride>>>;

/** `isTuned`: GEMMs may round differently from eager code. */
export function batchGemms(runtime: Runtime, program: Program, isTuned: boolean): void {
  if (!isTuned || !capabilitiesOf(runtime).combinesKernels) return;
  // Buffers that were moved for one batch have the stride that another batch needs, such as that of the weight gradients.
  while (batchOnce(runtime, program));
}

/** Returns true if there are new batches. */
function batchOnce(runtime: Runtime, program: Program): boolean {
  const busyElements = busyGemmElements(runtime.device);
  let hasMerged = false;
  /** The batch whose buffer a step buffer becomes part of: it cannot be part of two. */
  const claims = new Map<Buffer, Node>();
  const haveOneWriter = (members: readonly GemmItem[], name: OperandName): boolean => {
    const writers = slicesOf(members, name).flatMap(({ buffer }) => writersOf(program, buffer));
    return writers.length === members.length && new Set(writers).size === 1;
  };
  const moved = new Map<Buffer, Location>();
  groupCalls<GemmItem>(program, {
    defersConsumers: true,
    itemOf({ work }) {
      if (work.kind !== "gemm" || !canBatch(work.problem)) return undefined;
      const { problem } = work;
      // Grouped later, without another buffer for the results.
      if (isProjection(runtime, describeGemm(problem))) return undefined;
      return problem.m * problem.n < busyElements ? { problem, key: keyOf(problem) } : undefined;
    },
    rank: (groups, { key }) => groups.filter(({ items }) => items[0]?.key === key),
    canJoin({ node, items }, item) {
      const { m, n } = item.problem;
      if ((items.length + 1) * m * n > maxBatchedWaves * busyElements) return false;
      const members = inOrder([...items, item]);
      const batch = batchOf(members);
      return (
        batch !== undefined &&
        movedBuffers(members, batch).every((buffer) => (claims.get(buffer) ?? node) === node) &&
        inputNames.every((name) => !batch[name]?.isMoved || haveOneWriter(members, name))
      );
    },
    onJoin({ node, items }) {
      const batch = batchOf(inOrder(items));
      if (batch) for (const buffer of movedBuffers(items, batch)) claims.set(buffer, node);
    },
    merge({ items }) {
      hasMerged = true;
      const problem = merge(program, inOrder(items), moved);
      return { work: { kind: "gemm", problem: withScratch(runtime, program, problem) } };
    },
  });
  relocateCalls(program, moved);
  return hasMerged;
}

/** The calls that write a buffer; those of a batch that is not merged yet count one by one. */
function writersOf(program: Program, buffer: Buffer): readonly Call[] {
  return program
    .uses(buffer)
    .writers.flatMap(({ calls }) => calls)
    .filter((call) => accessesOf(call).some(({ slice, writes }) => writes && slice.buffer === buffer));
}

function canBatch({ batch = 1, beta = 0, activation }: Problem): boolean {
  return batch === 1 && beta === 0 && !activation;
}

function keyOf({ a, b, c, bias, scratch: _, ...rest }: Problem): string {
  const layouts = [a, b, c].map(({ slice: { size }, ...layout }) => [size, layout]);
  return literalKey([rest, layouts, bias?.size ?? 0]);
}

function slicesOf(members: readonly GemmItem[], name: OperandName): readonly BufferSlice[] {
  return members.flatMap((member) => sliceOf(member, name) ?? []);
}

function sliceOf({ problem }: GemmItem, name: OperandName): BufferSlice | undefined {
  return name === "bias" ? problem.bias : problem[name].slice;
}

/** By the offset of B, then of A and C, so that strides are positive. */
function inOrder(members: readonly GemmItem[]): readonly GemmItem[] {
  const offset = (item: GemmItem, name: OperandName): number => sliceOf(item, name)?.offset ?? 0;
  return [...members].sort(
    (x, y) =>
      offset(x, "b") - offset(y, "b") || offset(x, "a") - offset(y, "a") || offset(x, "c") - offset(y, "c"),
  );
}

/** How each operand is batched; undefined if one of them cannot be. */
function batchOf(members: readonly GemmItem[]): Batch | undefined {
  const batch: Partial<Record<OperandName, BatchStride>> = {};
  for (const name of operandNames) {
    const slices = slicesOf(members, name);
    if (slices.length === 0) continue;
    const operand = findBatchStride(slices, elementBytes(name, members));
    if (!operand || (name === "c" && operand.strideBytes < (slices[0]?.size ?? 0))) return undefined;
    batch[name] = operand;
  }
  return batch;
}

function elementBytes(name: OperandName, [first]: readonly GemmItem[]): number {
  if (!first) return 1;
  const { dtype, resultDtype = dtype, biasDtype = resultDtype } = first.problem;
  return dtypes[{ a: dtype, b: dtype, c: resultDtype, bias: biasDtype }[name]].bytes;
}

function movedBuffers(members: readonly GemmItem[], batch: Batch): readonly Buffer[] {
  return operandNames
    .filter((name) => batch[name]?.isMoved)
    .flatMap((name) => slicesOf(members, name).map(({ buffer }) => buffer));
}

/** The members as one batched GEMM; buffers that move are noted. */
function merge(program: Program, members: readonly GemmItem[], moved: Map<Buffer, Location>): Problem {
  const [first] = members as [GemmItem];
  const batch = batchOf(members) ?? {};
  const span = (name: OperandName): BufferSlice | undefined => {
    const stride = batch[name];
    return stride && batchSlice(program, slicesOf(members, name), stride, moved);
  };
  const batchStride = (name: OperandName): number =>
    (batch[name]?.strideBytes ?? 0) / elementBytes(name, members);
  const matrix = <T extends Problem["c"]>(name: "a" | "b" | "c", operand: T): T => ({
    ...operand,
    slice: span(name) ?? operand.slice,
    batchStride: batchStride(name),
  });
  const { scratch: _, a, b, c, ...rest } = first.problem;
  const bias = span("bias");
  return {
    ...rest,
    ...{ batch: members.length, a: matrix("a", a), b: matrix("b", b), c: matrix("c", c) },
    ...(bias && { bias, biasBatchStride: batchStride("bias") }),
  };
}
