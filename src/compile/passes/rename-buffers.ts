/**
 * Buffer renaming: a value that is overwritten after other calls have read it gets a new buffer, which removes the write-after-read
 * dependency. For example, a layer's gradient is added to a residual's while a weight gradient still reads the residual's. This costs
 * memory and pays only if calls run concurrently.
 */

import { dtypes, loadsOf } from "../../ir/index.js";
import {
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  mapSlices,
  type RowCall,
} from "../program/program.js";
import { bufferMaker } from "../program/uses.js";

export function renameBuffers(calls: readonly Call[]): readonly Call[] {
  /** The present buffer of each original one. */
  const homes = new Map<Buffer, Buffer>();
  /** Buffers whose present value an earlier call has read. */
  const read = new Set<Buffer>();
  const make = bufferMaker(calls);
  const atHome = (slice: BufferSlice): BufferSlice => {
    const buffer = homes.get(slice.buffer);
    return buffer ? { ...slice, buffer } : slice;
  };

  return calls.map((call) => {
    const before = mapSlices(call.work, atHome);
    const replaced = new Set(call.work.kind === "row" ? wholeResults(call.work) : []);
    for (const buffer of replaced) {
      if (read.has(buffer)) homes.set(buffer, make(buffer.bytes, buffer.label));
      else replaced.delete(buffer);
    }
    const accesses = accessesOf(call);
    for (const { slice, reads } of accesses) if (reads) read.add(slice.buffer);
    for (const { slice, writes } of accesses) if (writes) read.delete(slice.buffer);
    if (before.kind !== "row" || call.work.kind !== "row") return { ...call, work: before };
    const { kernel, operands: given } = call.work;
    const operands = before.operands.map((slice, index) => {
      const own = given[index];
      return own && index >= kernel.inputs.length && replaced.has(own.buffer) ? atHome(own) : slice;
    });
    return { ...call, work: { ...before, operands } };
  });
}

/** Step buffers that a call overwrites completely, and does not read after its first store. */
function wholeResults(call: RowCall): Buffer[] {
  const { kernel, operands } = call;
  return operands.flatMap(({ buffer }, index) => {
    const isAlone = operands.every(
      (slice, other) => other === index || slice.buffer !== buffer || isInput(call, other),
    );
    const isNew = !isInput(call, index) && isAlone && !buffer.storage && isWrittenWhole(call, index);
    if (!isNew) return [];
    const stored = kernel.stages.findIndex(
      (stage) => stage.kind === "store" && stage.output === index - kernel.inputs.length,
    );
    const isReadLater = kernel.stages
      .slice(stored + 1)
      .some(({ value }) => loadsOf(value).some(({ input }) => operands[input]?.buffer === buffer));
    return stored < 0 || isReadLater ? [] : [buffer];
  });
}

function isInput({ kernel }: RowCall, operand: number): boolean {
  return operand < kernel.inputs.length;
}

/** True if the call stores every element of the output's buffer. */
function isWrittenWhole({ kernel, iteration, operands }: RowCall, operand: number): boolean {
  const output = kernel.outputs[operand - kernel.inputs.length];
  const slice = operands[operand];
  if (!output || !slice || output.per !== "element" || slice.offset !== 0) return false;
  let elements = 1;
  for (const { size, strides } of [iteration.row, ...iteration.outer.toReversed()]) {
    if (size > 1 && strides[operand] !== elements) return false;
    elements *= size;
  }
  return elements * dtypes[output.dtype].bytes === slice.buffer.bytes;
}
