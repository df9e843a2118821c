/**
 * A conversion of a buffer that several calls write as views, such as the concatenated columns that a GEMM reads as bf16: each writer stores
 * its converted values, and the buffer is never stored. A buffer with one writer is left to vertical fusion.
 */

import { type Dtype, dtypes, factsOf, type RowKernel } from "../../ir/index.js";
import { type Cast, castOf } from "../program/casts.js";
import type { Buffer, BufferSlice, Node, Program, RowCall } from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";

export function storeConvertedViews(program: Program): void {
  for (const node of program.nodes) {
    const cast = castOf(node);
    if (!cast || !isRounding(cast) || !isWrittenOnce(program, cast.to.buffer)) continue;
    const { writers, readers } = program.uses(cast.from.buffer);
    if (!isWhole(cast.from) || cast.from.buffer.storage || readers.length !== 1 || writers.length < 2)
      continue;
    if (!writers.every((writer) => writer.isBefore(node) && canConvert(writer, cast))) continue;
    for (const writer of [...writers]) convertOutput(program, writer, cast);
    program.remove(node);
  }
}

/** True for a conversion of f32 to half floats: a store rounds in the same way. */
function isRounding({ work: { kernel } }: Cast): boolean {
  const [output] = kernel.outputs;
  return kernel.inputs[0] === "f32" && (output?.dtype === "bf16" || output?.dtype === "f16");
}

const isWhole = ({ buffer, offset, size }: BufferSlice): boolean => offset === 0 && size === buffer.bytes;

/** The operand that a call writes to a buffer, if it writes elements of one view and does not read the buffer. */
function viewIn({ kernel, operands }: RowCall, buffer: Buffer): number | undefined {
  const [operand, ...others] = operands.flatMap((slice, index) => (slice.buffer === buffer ? [index] : []));
  const output = kernel.outputs[(operand ?? 0) - kernel.inputs.length];
  return others.length === 0 && output?.per === "element" && output.dtype === "f32" ? operand : undefined;
}

function canConvert({ call }: Node, { from, node }: Cast): boolean {
  const { work } = call;
  if (work.kind !== "row" || call.isRematerialized !== node.call.isRematerialized) return false;
  return factsOf(work.kernel).isElementwise && viewIn(work, from.buffer) !== undefined;
}

function convertOutput(program: Program, node: Node, { from, to, work: { kernel } }: Cast): void {
  const { work } = node.call;
  const operand = work.kind === "row" ? viewIn(work, from.buffer) : undefined;
  const dtype = kernel.outputs[0]?.dtype;
  if (work.kind !== "row" || operand === undefined || dtype === undefined) return;
  const scale = dtypes[dtype].bytes / dtypes.f32.bytes;
  const operands = work.operands.map((slice, index) =>
    index === operand
      ? { buffer: to.buffer, offset: to.offset + slice.offset * scale, size: slice.size * scale }
      : slice,
  );
  const converting = convertingKernel(work.kernel, operand - work.kernel.inputs.length, dtype);
  program.replace(node, { ...node.call, work: { ...work, kernel: converting, operands } });
}

const known = new WeakMap<RowKernel, Map<string, RowKernel>>();

/** Compiled code is cached by kernel identity, so each variant is made once. */
function convertingKernel(kernel: RowKernel, output: number, dtype: Dtype): RowKernel {
  const variants = known.get(kernel) ?? new Map<string, RowKernel>();
  known.set(kernel, variants);
  const key = `${output} ${dtype}`;
  const outputs = kernel.outputs.map((one, index) => (index === output ? { ...one, dtype } : one));
  const variant: RowKernel = variants.get(key) ?? { ...kernel, outputs };
  variants.set(key, variant);
  return variant;
}
