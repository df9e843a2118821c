/**
 * Attention writes a result to its strided destination instead of copying it there: the gradients of a query, key and value that are
 * slices of one projection become slices of its gradient. The bits stay.
 */

import { dtypes, type Iteration } from "../../ir/index.js";
import {
  areDistinct,
  areInterleaved,
  type PlacedAccess,
  stridedAccess,
} from "../fusion/vertical/strided-access.js";
import { movedValueOf } from "../program/casts.js";
import { moveResult, type ResultLayout, resultLayouts } from "../program/kinds/attention.js";
import { accessesOf, type Node, type Program, type RowCall } from "../program/program.js";
import { areDisjoint, extentOf } from "../program/slices.js";
import { isWrittenOnce } from "../program/uses.js";
import { isWhole } from "./copy-propagation.js";

export function writeAttentionOutputs(program: Program): void {
  for (const node of program.nodes) {
    if (node.call.work.kind !== "attention") continue;
    for (const name of Object.keys(resultLayouts(node.call.work))) moveToDestination(program, node, name);
  }
}

function moveToDestination(program: Program, node: Node, name: string): void {
  const { work } = node.call;
  const layout = work.kind === "attention" ? resultLayouts(work)[name] : undefined;
  if (work.kind !== "attention" || !layout) return;
  const copy = soleCopyOf(program, layout, node);
  const moved = copy && movedLayout(layout, copy.work);
  if (!copy || !moved || isDestinationUsed(program, node, copy, moved)) return;
  program.replace(node, { ...node.call, work: moveResult(work, name, moved) });
  program.remove(copy.node);
}

interface Copy {
  readonly node: Node;
  readonly work: RowCall;
}

/** The copy that is the only reader of a result. It reads every element once, in full precision. */
function soleCopyOf(program: Program, { slice, dtype, sizes }: ResultLayout, writer: Node): Copy | undefined {
  const [node, ...others] = program.uses(slice.buffer).readers;
  if (!node || others.length > 0 || !writer.isBefore(node)) return undefined;
  const { work } = node.call;
  if (work.kind !== "row" || movedValueOf(work)?.kind !== "load" || !isWrittenOnce(program, slice.buffer))
    return undefined;
  const { kernel, iteration, operands } = work;
  const elements = sizes.reduce((product, size) => product * size, 1);
  const isExact =
    kernel.inputs[0] === dtype && kernel.outputs[0]?.dtype === dtype && dtypes[dtype].compute === dtype;
  const isAll =
    [slice, operands[0]].every((read) => read && isWhole(read)) && iteration.elements === elements;
  const isOnce = areDistinct(stridedAccess(iteration, 0, "element"));
  return isExact && isAll && isOnce && elements * dtypes[dtype].bytes === slice.size
    ? { node, work }
    : undefined;
}

/** The layout of a result at the destination of its copy; undefined if that has no single stride along an axis, or gaps in a row. */
function movedLayout(layout: ResultLayout, { iteration, operands }: RowCall): ResultLayout | undefined {
  const slice = operands[1];
  const strides = layout.strides.map((stride, axis) =>
    layout.sizes[axis] === 1 ? 0 : strideAfter(iteration, stride, layout.sizes[axis] ?? 1),
  );
  const rowStride = layout.sizes.at(-1) === 1 ? 1 : strides.at(-1);
  if (!slice || rowStride !== 1 || strides.some((stride) => stride === undefined || stride < 0))
    return undefined;
  return { ...layout, slice, strides: strides.map((stride) => stride ?? 0) };
}

/** The stride in the target of a copy along elements with a stride in its source. */
function strideAfter({ outer, row }: Iteration, stride: number, size: number): number | undefined {
  for (const axis of [...outer, row]) {
    const [from = 0, to = 0] = axis.strides;
    const isWithin = stride % from === 0 && stride >= from && stride * size <= from * axis.size;
    if (isWithin) return (stride / from) * to;
  }
  return undefined;
}

/** True if the destination is accessed after the result is computed and before it is copied, or by attention itself. */
function isDestinationUsed(program: Program, node: Node, copy: Copy, destination: ResultLayout): boolean {
  const { slice } = destination;
  const written = placedAccess(destination);
  return program
    .usersBetween(slice.buffer, node, copy.node)
    .filter((user) => user !== copy.node)
    .some(({ call }) => {
      const exact = call.work.kind === "attention" ? Object.values(resultLayouts(call.work)) : [];
      return accessesOf(call).some((access) => {
        if (areDisjoint(extentOf(access.slice), extentOf(slice))) return false;
        const result = exact.find((other) => other.slice === access.slice);
        return !result || !areInterleaved(placedAccess(result), written);
      });
    });
}

function placedAccess({ slice, sizes, strides, dtype }: ResultLayout): PlacedAccess {
  const steps = sizes.map((size, axis) => ({ size, stride: strides[axis] ?? 0 }));
  return { from: extentOf(slice).from, steps: steps.toReversed(), elementBytes: dtypes[dtype].bytes };
}
