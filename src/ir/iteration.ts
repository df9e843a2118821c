/**
 * Iteration spaces from shapes and strides: axes of size one are dropped, axes that are contiguous in every operand are merged, and the
 * rest is split into a row and outer axes.
 */

import { HoldfastError } from "../errors/index.js";

/** One operand's strides along the axes, in elements; 0 for a broadcast axis. */
export type Strides = readonly number[];

export interface Axis {
  readonly size: number;
  /** The stride of each operand along it, in elements. */
  readonly strides: readonly number[];
}

export interface Iteration {
  /** `elements`: the division into rows is arbitrary. */
  readonly kind: "elements" | "rows";
  /** The outer axes, the last one fastest. */
  readonly outer: readonly Axis[];
  readonly row: Axis;
  /** The number of rows, and of elements in all rows. */
  readonly rows: number;
  readonly elements: number;
}

/** An operand's stride along a row: 1, 0, or any other. */
export type InnerStride = "unit" | "none" | "any";

export function innerStrideOf({ size, strides }: Axis, operand: number): InnerStride {
  const stride = strides[operand] ?? 0;
  // The stride of a row with at most one element is irrelevant.
  if (stride === 1 || size <= 1) return "unit";
  return stride === 0 ? "none" : "any";
}

/**
 * For elementwise kernels that use no position: any division into rows is valid. The axes have the order of the last operand in memory,
 * which is an output.
 */
export function iterateElements(shape: readonly number[], operands: readonly Strides[]): Iteration {
  if (!isOrdered(shape, operands.at(-1) ?? [])) return iterateInOrder(shape, operands);
  const axes = mergeAxes(shape, operands, 0, shape.length);
  const row = axes.pop() ?? single(operands);
  return iterationOf("elements", axes, row);
}

/** True if no axis has a larger stride than one before it. Axes of size one do not count. */
function isOrdered(shape: readonly number[], strides: Strides): boolean {
  let outer = Number.POSITIVE_INFINITY;
  for (let axis = 0; axis < shape.length; axis++) {
    const [size = 1, stride = 0] = [shape[axis], strides[axis]];
    if (size === 1) continue;
    if (stride > outer) return false;
    outer = stride;
  }
  return true;
}

function iterateInOrder(shape: readonly number[], operands: readonly Strides[]): Iteration {
  const last = operands.at(-1) ?? [];
  const order = shape
    .map((_, axis) => axis)
    .filter((axis) => shape[axis] !== 1)
    .sort((a, b) => (last[b] ?? 0) - (last[a] ?? 0));
  const permuted = (list: readonly number[]): number[] => order.map((axis) => list[axis] ?? 0);
  return iterateElements(permuted(shape), operands.map(permuted));
}

/** Rows over the last `reduced` axes, which have to be contiguous in every operand. */
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
      `Cannot reduce over the last ${reduced} axes of [${shape.join(", ")}]: they are not contiguous in memory. ` +
        "Call contiguous() first.",
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
 * The axes from `from` to before `to`, without those of size one. Neighbouring axes that are contiguous in all operands are merged. An empty
 * axis makes the whole iteration empty. Every launch runs this, so it allocates no arrays except its result.
 */
function mergeAxes(shape: readonly number[], operands: readonly Strides[], from: number, to: number): Axis[] {
  const merged: { size: number; readonly strides: readonly number[] }[] = [];
  let inner: (typeof merged)[number] | undefined;
  for (let axis = to - 1; axis >= from; axis--) {
    const size = shape[axis] ?? 1;
    if (size === 0) return [{ size, strides: stridesAlong(operands, axis) }];
    if (size === 1) continue;
    if (inner && spansInner(operands, axis, inner)) {
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

/** True if the stride of an axis spans the inner axis in every operand. */
function spansInner(operands: readonly Strides[], axis: number, inner: Axis): boolean {
  for (let operand = 0; operand < operands.length; operand++) {
    const stride = operands[operand]?.[axis] ?? 0;
    if (stride !== (inner.strides[operand] ?? 0) * inner.size) return false;
  }
  return true;
}
