/**
 * From shapes and strides to a row kernel's layout and sizes: axes of size one are dropped, axes that lie behind each
 * other in every operand become one, and the rest is split into rows and blocks.
 */

import { HoldfastError } from "../errors/index.js";
import type { InnerStride, Layout } from "./wasm-printer/row-kernel.js";

/** How many elements a block of work has, roughly: enough to be worth handing to a thread. */
export const elementsPerBlock = 4096;

/** One operand's steps along the axes of the iteration, in elements; 0 where it is broadcast. */
export type Strides = readonly number[];

export interface Iteration {
  readonly layout: Layout;
  readonly blocks: number;
  /** The numbers behind the operands, as the printed kernel takes them. */
  readonly sizes: readonly number[];
}

interface Axis {
  readonly size: number;
  /** One a operand. */
  readonly strides: readonly number[];
}

/** Rows of any cut: for kernels that only store, whose every element stands for itself. */
export function iterateElements(shape: readonly number[], operands: readonly Strides[]): Iteration {
  const axes = mergeAxes(axesOf(shape, operands));
  const last = axes.at(-1) ?? { size: 1, strides: operands.map(() => 0) };
  if (axes.length > 1) return rowsOf(axes.slice(0, -1), last);
  // One long vector is cut into rows, so that threads can share it.
  const size = Math.min(last.size, elementsPerBlock);
  const rows = {
    size: Math.ceil(last.size / Math.max(1, size)),
    strides: last.strides.map((one) => one * size),
  };
  return rowsOf([rows], { size, strides: last.strides }, last.size);
}

/** Rows over the last `reduced` axes, which have to lie behind each other in every operand. */
export function iterateRows(
  shape: readonly number[],
  operands: readonly Strides[],
  reduced: number,
): Iteration {
  const axes = axesOf(shape, operands);
  const cut = shape.length - reduced;
  const inner = mergeAxes(axes.slice(cut));
  if (inner.length > 1) {
    throw new HoldfastError(
      "UNSUPPORTED",
      `The last ${reduced} axes of [${shape.join(", ")}] don't lie behind each other in memory, so they are no row. ` +
        "Make the operand contiguous first.",
    );
  }
  const [row = { size: 1, strides: operands.map(() => 0) }] = inner;
  return rowsOf(mergeAxes(axes.slice(0, cut)), row);
}

function axesOf(shape: readonly number[], operands: readonly Strides[]): Axis[] {
  return shape.map((size, axis) => ({ size, strides: operands.map((strides) => strides[axis] ?? 0) }));
}

/**
 * Drops axes of size one and joins neighbours wherever all operands step through them as through one. Where an axis is
 * empty all of them are one: nothing is stepped through.
 */
function mergeAxes(axes: readonly Axis[]): Axis[] {
  const empty = axes.find(({ size }) => size === 0);
  if (empty) return [empty];
  const merged: Axis[] = [];
  for (const axis of axes) {
    if (axis.size === 1) continue;
    const before = merged.at(-1);
    const joins = before?.strides.every(
      (stride, operand) => stride === (axis.strides[operand] ?? 0) * axis.size,
    );
    if (before && joins) merged.splice(-1, 1, { size: before.size * axis.size, strides: axis.strides });
    else merged.push(axis);
  }
  return merged;
}

function rowsOf(outer: readonly Axis[], row: Axis, elements?: number): Iteration {
  const rows = outer.reduce((product, { size }) => product * size, 1);
  const inner = row.strides.map((stride): InnerStride => {
    // A row of one element or none has no step to take, whatever its stride says.
    if (stride === 1 || row.size <= 1) return "unit";
    return stride === 0 ? "none" : "any";
  });
  const rowsPerBlock = Math.max(1, Math.floor(elementsPerBlock / Math.max(1, row.size)));
  const perOperand = row.strides.flatMap((stride, operand) => [
    ...outer.map(({ strides }) => strides[operand] ?? 0),
    ...(inner[operand] === "any" ? [stride] : []),
  ]);
  return {
    layout: { outerRank: outer.length, inner },
    blocks: Math.ceil(rows / rowsPerBlock),
    sizes: [
      rows,
      row.size,
      rowsPerBlock,
      elements ?? rows * row.size,
      ...outer.map(({ size }) => size),
      // Negative steps (a flipped view) travel as their 32-bit pattern.
      ...perOperand.map((stride) => stride >>> 0),
    ],
  };
}
