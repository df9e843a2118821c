/**
 * Epilogue fusion: runs elementwise work on a GEMM's result in the epilogue of its kernel, which saves a pass over memory. Examples: an
 * activation after a wide layer, its gradient, or the sum with a residual's gradient. The kernels say which GEMMs can.
 */

import { canFuseEpilogue, type Epilogue } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { DependencyGraph, type Node } from "../program/dependency-graph.js";
import {
  type Buffer,
  type BufferSlice,
  type Call,
  forwardedOutput,
  type GemmCall,
  type GemmEpilogueCall,
  isSameSlice,
  latestPhase,
  type RowCall,
} from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";
import { usesOf } from "../program/uses.js";

export function fuseEpilogues(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const order = new DependencyGraph();
  const made = new Map<Node, Call>();
  for (const call of calls) {
    const { node, writers } = order.add(call);
    for (const writer of writers) {
      if (made.has(writer)) continue;
      const isReadByOthers = (buffer: Buffer): boolean =>
        buffer.storage !== undefined || (uses.get(buffer)?.readers.length ?? 0) > 1;
      const fused = fusedCall(runtime, writer.call, call, isReadByOthers);
      const place = fused && order.fusionPosition(writer, node);
      if (!fused || place === undefined) continue;
      order.fuse(writer, node, place);
      made.set(writer, fused);
      break;
    }
  }
  return order.nodes.map((node) => made.get(node) ?? node.call);
}

/** The two calls as one; undefined if they cannot be fused. */
function fusedCall(
  runtime: Runtime,
  first: Call,
  second: Call,
  isReadByOthers: (buffer: Buffer) => boolean,
): Call | undefined {
  if (first.work.kind !== "gemm" || second.work.kind !== "row" || second.isRematerialized) return undefined;
  const { problem } = first.work;
  const { operands, scalars } = second.work;
  const found = epilogueIn(problem, second.work);
  if (!found) return undefined;
  const finish: Epilogue = { ...found, storesC: isReadByOthers(problem.c.slice.buffer) };
  if (!canFuseEpilogue(runtime, describeGemm(problem), finish)) return undefined;
  const { scratch: _, algorithm: __, ...plain } = problem;
  const work: GemmEpilogueCall = {
    kind: "gemm-epilogue",
    problem: plain,
    epilogue: finish,
    operands,
    scalars,
  };
  return { op: `${first.op} + ${second.op}`, phase: latestPhase([first, second]), work };
}

/** The epilogue that a row kernel can be: all operands have C's layout, and none is overwritten before it is read. */
function epilogueIn(
  { m, n, a, b, c, bias }: GemmCall["problem"],
  call: RowCall,
): Omit<Epilogue, "storesC"> | undefined {
  const { kernel, operands } = call;
  const { outer, row } = call.iteration;
  if (outer.length > 0 || row.size !== m * n || row.strides.some((stride) => stride !== 1)) return undefined;
  const [inputs, outputs] = [operands.slice(0, kernel.inputs.length), operands.slice(kernel.inputs.length)];
  const forwarded = inputs.map((_, input) => forwardedOutput(call, input));
  const product = inputs.findIndex(
    (slice, index) => forwarded[index] === undefined && isSameSlice(slice, c.slice),
  );
  if (product < 0 || !operands.every(isVectorAligned)) return undefined;
  const others = inputs.filter((_, index) => index !== product && forwarded[index] === undefined);
  // A block stores its outputs while others still read.
  const read = [...others, a.slice, b.slice, c.slice, ...(bias ? [bias] : [])];
  const areFresh = read.every((one) => outputs.every((output) => areSeparate(one, output)));
  return areFresh && others.every((other) => areSeparate(other, c.slice))
    ? { kernel, gemmInput: product, forwarded }
    : undefined;
}

const areSeparate = (one: BufferSlice, other: BufferSlice): boolean =>
  areDisjoint(extentOf(one), extentOf(other));

/** Kernels move 16 bytes at a time. */
function isVectorAligned({ buffer, offset }: BufferSlice): boolean {
  return ((buffer.storage?.span.address ?? 0) + offset) % 16 === 0;
}
