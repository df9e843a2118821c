/**
 * Runs elementwise work on a product's result in the epilogue of the product's own kernel, where that saves a pass over much
 * memory: an activation after a wide layer, its gradient, or the sum with a residual's gradient. The kernels say which
 * products can do that.
 */

import { type Finish, gemmFinishes } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { outlineOf } from "../autotune/gemm-times.js";
import { type Node, Order } from "../program/dependency-graph.js";
import {
  type Buffer,
  type Call,
  type FinishedCall,
  isSamePart,
  outputReadBack,
  type Part,
  type ProductCall,
  partOfAll,
  type RowCall,
} from "../program/program.js";
import { areApart, extentOf } from "../program/slices.js";
import { usesOf } from "../program/uses.js";

export function finishProducts(runtime: Runtime, calls: readonly Call[]): readonly Call[] {
  const uses = usesOf(calls);
  const order = new Order();
  const made = new Map<Node, Call>();
  for (const call of calls) {
    const { node, writers } = order.add(call);
    for (const writer of writers) {
      if (made.has(writer)) continue;
      const isReadByOthers = (buffer: Buffer): boolean =>
        buffer.storage !== undefined || (uses.get(buffer)?.readers.length ?? 0) > 1;
      const finished = finishedOf(runtime, writer.call, call, isReadByOthers);
      const place = finished && order.placeFor(writer, node);
      if (!finished || place === undefined) continue;
      order.join(writer, node, place);
      made.set(writer, finished);
      break;
    }
  }
  return order.nodes.map((node) => made.get(node) ?? node.call);
}

/** The two calls as one, where they can be. */
function finishedOf(
  runtime: Runtime,
  first: Call,
  second: Call,
  isReadByOthers: (buffer: Buffer) => boolean,
): Call | undefined {
  if (first.work.kind !== "product" || second.work.kind !== "rows" || second.isRecomputed) return undefined;
  const { problem } = first.work;
  const { operands, scalars } = second.work;
  const found = finishIn(problem, second.work);
  if (!found) return undefined;
  const finish: Finish = { ...found, keepsResult: isReadByOthers(problem.c.part.buffer) };
  if (!gemmFinishes(runtime, outlineOf(problem), finish)) return undefined;
  const { scratch: _, choice: __, ...plain } = problem;
  const work: FinishedCall = { kind: "finished", problem: plain, finish, operands, scalars };
  return { op: `${first.op} + ${second.op}`, part: partOfAll([first, second]), work };
}

/** Which input is the product's result, where every operand lies as that does and none is stored over before it is read. */
function finishIn(
  { m, n, a, b, c, bias }: ProductCall["problem"],
  call: RowCall,
): Omit<Finish, "keepsResult"> | undefined {
  const { kernel, operands } = call;
  const { outer, row } = call.iteration;
  if (outer.length > 0 || row.size !== m * n || row.strides.some((stride) => stride !== 1)) return undefined;
  const [inputs, outputs] = [operands.slice(0, kernel.inputs.length), operands.slice(kernel.inputs.length)];
  const readBack = inputs.map((_, input) => outputReadBack(call, input));
  const product = inputs.findIndex(
    (part, index) => readBack[index] === undefined && isSamePart(part, c.part),
  );
  if (product < 0 || !operands.every(startsWhole)) return undefined;
  const others = inputs.filter((_, index) => index !== product && readBack[index] === undefined);
  // Blocks finish theirs while others still read.
  const read = [...others, a.part, b.part, c.part, ...(bias ? [bias] : [])];
  const areFresh = read.every((one) => outputs.every((output) => isApart(one, output)));
  return areFresh && others.every((other) => isApart(other, c.part))
    ? { kernel, product, readBack }
    : undefined;
}

const isApart = (one: Part, other: Part): boolean => areApart(extentOf(one), extentOf(other));

/** Kernels move 16 bytes at a time; buffers of a step begin on more. */
function startsWhole({ buffer, offset }: Part): boolean {
  return ((buffer.storage?.span.address ?? 0) + offset) % 16 === 0;
}
