/**
 * Buffer renaming: a value that is overwritten after other calls have read it gets a new buffer, which removes the write-after-read
 * dependency. For example, a layer's gradient is added to a residual's while a weight gradient still reads the residual's. This costs
 * memory and pays only if calls run concurrently.
 */

import { dtypes, loadsOf } from "../../ir/index.js";
import type { SliceMap } from "../program/kinds/kind.js";
import {
  type Buffer,
  type BufferSlice,
  mapSlices,
  type Program,
  type RowCall,
  type Work,
} from "../program/program.js";

export function renameBuffers(program: Program): void {
  /** The present buffer of each renamed one. */
  const renamed = new Map<Buffer, Buffer>();
  /** Buffers whose present value an earlier call has read. */
  const read = new Set<Buffer>();
  const rename = (slice: BufferSlice): BufferSlice => {
    const buffer = renamed.get(slice.buffer);
    return buffer ? { ...slice, buffer } : slice;
  };
  for (const node of program.nodes) {
    const { call, accesses } = node;
    const isAffected = accesses.some(({ slice }) => renamed.has(slice.buffer));
    const before = isAffected ? mapSlices(call.work, rename) : call.work;
    const overwritten = call.work.kind === "row" ? wholeResults(call.work) : [];
    const replaced = new Set(overwritten.filter((buffer) => read.has(buffer)));
    for (const buffer of replaced) renamed.set(buffer, program.makeBuffer(buffer.bytes, buffer.label));
    for (const { slice, reads } of accesses) if (reads) read.add(slice.buffer);
    for (const { slice, writes } of accesses) if (writes) read.delete(slice.buffer);
    const work = replaced.size > 0 ? withOutputs(before, call.work, replaced, rename) : before;
    if (work !== call.work) program.replace(node, { ...call, work });
  }
}

/** The same work with the outputs that were in these buffers in renamed ones. */
function withOutputs(work: Work, original: Work, replaced: ReadonlySet<Buffer>, rename: SliceMap): Work {
  if (work.kind !== "row" || original.kind !== "row") return work;
  const operands = work.operands.map((slice, index) => {
    const output = index < work.kernel.inputs.length ? undefined : original.operands[index];
    return output && replaced.has(output.buffer) ? rename(output) : slice;
  });
  return { ...work, operands };
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
