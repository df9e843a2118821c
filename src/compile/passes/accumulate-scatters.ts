/**
 * Replaces a scatter to zeros and the in-place addition of its result by one scatter that adds to the tensor. The gradient of an embedding
 * that is tied with the head of a language model then visits the rows that were selected, not the whole table twice. The entries of a row
 * are added one after the other, so the last digits can change.
 */

import type { RowKernel } from "../../ir/index.js";
import { type BufferSlice, isSameSlice, type Node, type Program, type Work } from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";

export function accumulateScatters(program: Program): void {
  for (const node of program.nodes) {
    const { work } = node.call;
    if (work.kind !== "scatter" || !work.shape.overwrites || work.shape.dtype !== "f32") continue;
    const { target, index, source, shape } = work;
    const [reader, ...others] = program.uses(target.buffer).readers;
    if (!reader || others.length > 0 || !isWrittenOnce(program, target.buffer)) continue;
    const sum = sumInPlace(reader.call.work, target);
    const isIntact = ({ buffer }: BufferSlice): boolean =>
      program
        .uses(buffer)
        .writers.every((writer) => writer === node || writer.isBefore(node) || reader.isBefore(writer));
    if (!sum || sum.buffer === source.buffer || ![index, source].every(isIntact)) continue;
    const { overwrites: _, ...accumulating } = shape;
    moveTo(program, node, reader, { ...work, shape: accumulating, target: sum });
  }
}

function moveTo(program: Program, node: Node, reader: Node, work: Work): void {
  program.replace(reader, { ...node.call, work });
  program.remove(node);
}

/** The slice that a call adds another one to, element by element, if it does nothing else. */
function sumInPlace(work: Work, added: BufferSlice): BufferSlice | undefined {
  if (work.kind !== "row" || !isSum(work.kernel)) return undefined;
  const { iteration, operands } = work;
  const [a, b, result] = operands;
  const isDense = iteration.outer.length === 0 && iteration.row.strides.every((stride) => stride === 1);
  if (!a || !b || !result || !isDense || result.size !== added.size) return undefined;
  const other = isSameSlice(a, added) ? b : isSameSlice(b, added) ? a : undefined;
  return other && isSameSlice(other, result) ? result : undefined;
}

function isSum({ inputs, outputs, scalars, stages }: RowKernel): boolean {
  const [stage] = stages;
  if (stages.length !== 1 || stage?.kind !== "store" || scalars.length > 0) return false;
  const { value } = stage;
  if (value.kind !== "binary" || value.op !== "add") return false;
  const loaded = [value.a, value.b].map((term) => (term.kind === "load" && !term.at ? term.input : -1));
  const isOfFloats = [...inputs, ...outputs.map(({ dtype }) => dtype)].every((dtype) => dtype === "f32");
  return isOfFloats && inputs.length === 2 && loaded.includes(0) && loaded.includes(1);
}
