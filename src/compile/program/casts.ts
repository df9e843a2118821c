/** Recognises calls that only move elements, as they are or converted. */

import type { Expression } from "../../ir/index.js";
import type { BufferSlice, Node, RowCall, Work } from "./program.js";

/** A call that converts one contiguous slice into a whole buffer and does nothing else. */
export interface Cast {
  readonly node: Node;
  readonly work: RowCall;
  readonly from: BufferSlice;
  readonly to: BufferSlice;
}

export function castOf(node: Node): Cast | undefined {
  const { work } = node.call;
  if (work.kind !== "row" || movedValueOf(work) === undefined) return undefined;
  const { kernel, iteration, operands } = work;
  const [from, to] = operands;
  const isCast =
    kernel.inputs[0] !== kernel.outputs[0]?.dtype &&
    iteration.outer.length === 0 &&
    iteration.row.strides.every((stride) => stride === 1);
  if (!isCast || !from || !to || to.offset !== 0 || to.size !== to.buffer.bytes) return undefined;
  return { node, work, from, to };
}

/** The stored value of a call that only moves elements of its one input; undefined if it does anything else. */
export function movedValueOf(work: Work): Expression | undefined {
  if (work.kind !== "row" || work.scalars.length > 0) return undefined;
  const { inputs, outputs, stages } = work.kernel;
  const [stage] = stages;
  if (inputs.length !== 1 || outputs.length !== 1 || stages.length !== 1) return undefined;
  if (inputs[0] === "draw") return undefined;
  if (stage?.kind !== "store") return undefined;
  const { value } = stage;
  const loaded = value.kind === "convert" ? value.a : value;
  return loaded.kind === "load" && !loaded.at ? value : undefined;
}
