/**
 * Strided accesses in canonical form. Axes are merged as far as possible, so that two operands with the same element at every point have
 * equal accesses, whatever the axes of their calls.
 */

import { type Iteration, iterateElements, iterateRows, type Output } from "../../../ir/index.js";

export interface Step {
  readonly size: number;
  readonly stride: number;
}

/** Innermost first; the product of the sizes is the number of points. */
export type StridedAccess = readonly Step[];

/** The access of an operand; one with a value for each row has stride 0 along the row. */
export function stridedAccess({ outer, row }: Iteration, operand: number, per: Output["per"]): StridedAccess {
  const along = (axis: Iteration["row"]): Step => ({ size: axis.size, stride: axis.strides[operand] ?? 0 });
  const first = per === "row" ? { size: row.size, stride: 0 } : along(row);
  return combineSplits([first, ...outer.toReversed().map(along)]);
}

export function combineSplits(steps: StridedAccess): StridedAccess {
  const merged: { size: number; stride: number }[] = [];
  for (const { size, stride } of steps) {
    const last = merged.at(-1);
    if (size === 1) continue;
    if (last && stride === last.stride * last.size) last.size *= size;
    else merged.push({ size, stride });
  }
  return merged;
}

/** The access of a value per row, seen from the row's elements. */
export function areRowInvariant(steps: StridedAccess, rowSize: number): StridedAccess {
  return combineSplits([{ size: rowSize, stride: 0 }, ...steps]);
}

export function isInvariantAlongRows([first]: StridedAccess, rowSize: number): boolean {
  return rowSize === 1 || (first !== undefined && first.stride === 0 && first.size % rowSize === 0);
}

/** How many different elements are accessed, if no two points share one. */
export function countElements(steps: StridedAccess): number {
  return steps.reduce((count, { size, stride }) => (stride === 0 ? count : count * size), 1);
}

/** An access in memory: the address of its first element, and the bytes of an element. */
export interface PlacedAccess {
  readonly from: number;
  readonly steps: StridedAccess;
  readonly elementBytes: number;
}

/**
 * True if two accesses are seen to share no byte, because they interleave as blocks of columns of a matrix do: their larger strides are
 * multiples of a pitch, and without these each stays in its own part of the pitch.
 */
export function areInterleaved(a: PlacedAccess, b: PlacedAccess): boolean {
  const strides = [a, b].flatMap(({ steps, elementBytes }) =>
    steps.map(({ stride }) => Math.abs(stride) * elementBytes),
  );
  return [...new Set(strides)].some((smallest) => {
    const pitch = strides.filter((stride) => stride >= smallest).reduce(greatestDivisor, 0);
    if (pitch === 0) return false;
    const [blockA, blockB] = [blockBytes(a, smallest), blockBytes(b, smallest)];
    const apart = (((b.from - a.from) % pitch) + pitch) % pitch;
    return apart >= blockA && apart + blockB <= pitch;
  });
}

/** The bytes from the first element to the last along the axes with smaller strides. */
function blockBytes({ steps, elementBytes }: PlacedAccess, smallest: number): number {
  return steps.reduce((bytes, { size, stride }) => {
    if (Math.abs(stride) * elementBytes >= smallest) return bytes;
    return stride < 0 ? Infinity : bytes + (size - 1) * stride * elementBytes;
  }, elementBytes);
}

function greatestDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestDivisor(b, a % b);
}

/** True if each point has an element of its own. Detects only nested axes, as tensors have them. */
export function areDistinct(steps: StridedAccess): boolean {
  const sorted = steps.map(({ size, stride }) => ({ size, stride: Math.abs(stride) }));
  sorted.sort((a, b) => a.stride - b.stride);
  let reach = 0;
  for (const { size, stride } of sorted) {
    if (stride <= reach) return false;
    reach += (size - 1) * stride;
  }
  return true;
}

/** An iteration with all these accesses, cut into rows of any length or of one length. */
export function iterationOf(
  all: readonly StridedAccess[],
  elements: number,
  rowSize?: number,
): Iteration | undefined {
  const bounds = boundsOf(all, elements, rowSize);
  if (!bounds) return undefined;
  const strides = all.map((steps) => stridesWithin(steps, bounds).reverse());
  const shape = bounds.slice(1).map((bound, index) => bound / (bounds[index] ?? 1));
  shape.reverse();
  return rowSize === undefined
    ? iterateElements(shape, strides)
    : iterateRows(shape, strides, rowSize === 1 ? 0 : 1);
}

/** The point counts at which the stride of some operand changes, ascending; each must divide the next. */
function boundsOf(
  all: readonly StridedAccess[],
  elements: number,
  rowSize = 1,
): readonly number[] | undefined {
  const bounds = new Set([1, rowSize, elements]);
  for (const steps of all) {
    let bound = 1;
    for (const { size } of steps) {
      bound *= size;
      bounds.add(bound);
    }
  }
  const sorted = [...bounds].sort((a, b) => a - b);
  for (const [index, bound] of sorted.entries()) {
    if (bound % (sorted[index - 1] ?? 1) !== 0) return undefined;
    // Along a row every operand has one stride.
    if (bound > 1 && bound < rowSize) return undefined;
  }
  return sorted;
}

function stridesWithin(steps: StridedAccess, bounds: readonly number[]): number[] {
  const strides: number[] = [];
  let [which, begin] = [0, 1];
  for (const bound of bounds.slice(0, -1)) {
    let step = steps[which];
    if (step && bound >= begin * step.size) {
      begin *= step.size;
      step = steps[++which];
    }
    strides.push(((step?.stride ?? 0) * bound) / begin);
  }
  return strides;
}
