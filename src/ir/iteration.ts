/**
 * From shapes and strides to rows, for any device: axes of size one are dropped, axes that lie behind each other in every
 * operand become one, and the rest is split into a row and the axes over which rows are counted.
 */

import { HoldfastError } from "../errors/index.js";

/** One operand's steps along the axes of the iteration, in elements; 0 where it is broadcast. */
export type Strides = readonly number[];

export interface Axis {
  readonly size: number;
  /** The step along it, one an operand, in elements. */
  readonly strides: readonly number[];
}

export interface Iteration {
  /** `elements` says that any other cut into rows does as well. */
  readonly kind: "elements" | "rows";
  /** The axes over which rows are counted, the last one fastest. */
  readonly outer: readonly Axis[];
  readonly row: Axis;
  /** How many rows there are, and how many elements in all of them. */
  readonly rows: number;
  readonly elements: number;
}

/** How an operand moves along a row: to the next element, not at all, or by its stride. */
export type InnerStride = "unit" | "none" | "any";

export function innerStrideOf({ size, strides }: Axis, operand: number): InnerStride {
  const stride = strides[operand] ?? 0;
  // A row of one element or none has no step to take, whatever its stride says.
  if (stride === 1 || size <= 1) return "unit";
  return stride === 0 ? "none" : "any";
}

/** Rows of any cut: for kernels that only store elements and ask for no place, whose every element stands for itself. */
export function iterateElements(shape: readonly number[], operands: readonly Strides[]): Iteration {
  const axes = mergeAxes(shape, operands, 0, shape.length);
  const row = axes.pop() ?? single(operands);
  return iterationOf("elements", axes, row);
}

/** Rows over the last `reduced` axes, which have to lie behind each other in every operand. */
export function iterateRows(
  shape: readonly number[],
  operands: readonly Strides[],
  reduced: number,
): Iteration {
  const cut = shape.length - reduced;
  const inner = mergeAxes(shape, operands, cut, shape.length);
  if (inner.length > 1) {
    throw new HoldfastError(
      "UNSUPPORTED",
      `The last ${reduced} axes of [${shape.join(", ")}] don't lie behind each other in memory, so they are no row. ` +
        "Make the operand contiguous first.",
    );
  }
  return iterationOf("rows", mergeAxes(shape, operands, 0, cut), inner[0] ?? single(operands));
}

function iterationOf(kind: Iteration["kind"], outer: readonly Axis[], row: Axis): Iteration {
  let rows = 1;
  for (const { size } of outer) rows *= size;
  return { kind, outer, row, rows, elements: rows * row.size };
}

function single(operands: readonly Strides[]): Axis {
  return { size: 1, strides: operands.map(() => 0) };
}

/**
 * The axes from one to before another, less those of size one, neighbours joined wherever all operands step through them
 * as through one. Where an axis is empty all of them are one: nothing is stepped through. Every launch comes through
 * here, so it makes no arrays but those that it returns.
 */
function mergeAxes(shape: readonly number[], operands: readonly Strides[], from: number, to: number): Axis[] {
  const merged: { size: number; readonly strides: readonly number[] }[] = [];
  let inner: (typeof merged)[number] | undefined;
  for (let axis = to - 1; axis >= from; axis--) {
    const size = shape[axis] ?? 1;
    if (size === 0) return [{ size, strides: stridesAlong(operands, axis) }];
    if (size === 1) continue;
    if (inner && stepsOver(operands, axis, inner)) {
      inner.size *= size;
      continue;
    }
    inner = { size, strides: stridesAlong(operands, axis) };
    merged.push(inner);
  }
  return merged.reverse();
}

function stridesAlong(operands: readonly Strides[], axis: number): number[] {
  return operands.map((strides) => strides[axis] ?? 0);
}

/** Does a step along an axis go over the whole of the inner one, in every operand? */
function stepsOver(operands: readonly Strides[], axis: number, inner: Axis): boolean {
  for (let operand = 0; operand < operands.length; operand++) {
    const step = operands[operand]?.[axis] ?? 0;
    if (step !== (inner.strides[operand] ?? 0) * inner.size) return false;
  }
  return true;
}
