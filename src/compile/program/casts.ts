/** Recognises calls that only move elements, as they are or converted. */

import type { Expression } from "../../ir/index.js";
import type { BufferSlice, RowCall } from "./program.js";

/** A call that converts one contiguous slice into a whole buffer and does nothing else. */
export interface Cast {
  /** Its index in the program. */
  readonly index: number;
  readonly call: RowCall;
  readonly from: BufferSlice;
  readonly to: BufferSlice;
}

export function castOf(call: RowCall, index: number): Cast | undefined {
  const { kernel, iteration, operands } = call;
  const [from, to] = operands;
  const isCast =
    movedValueOf(call) !== undefined &&
    kernel.inputs[0] !== kernel.outputs[0]?.dtype &&
    iteration.outer.length === 0 &&
    iteration.row.strides.every((stride) => stride === 1);
  if (!isCast || !from || !to || to.offset !== 0 || to.size !== to.buffer.bytes) return undefined;
  return { index, call, from, to };
}

/** The stored value of a call that only moves elements of its one input; undefined if it does anything else. */
export function movedValueOf({ kernel, scalars }: RowCall): Expression | undefined {
  const { inputs, outputs, stages } = kernel;
  const [stage] = stages;
  if (inputs.length !== 1 || outputs.length !== 1 || stages.length !== 1 || scalars.length > 0)
    return undefined;
  if (stage?.kind !== "store") return undefined;
  const { value } = stage;
  const loaded = value.kind === "convert" ? value.a : value;
  return loaded.kind === "load" && !loaded.at ? value : undefined;
}
