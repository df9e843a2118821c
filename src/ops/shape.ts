/** Shapes and axes, with errors that name the op, its arguments and the valid values. */

import { HoldfastError } from "../errors/index.js";

export type Shape = readonly number[];

// Every call of an op uses these two functions several times, so they are loops without closures.
export function sizeOf(shape: Shape): number {
  let product = 1;
  for (let axis = 0; axis < shape.length; axis++) product *= shape[axis] as number;
  return product;
}

export function isSameShape(a: Shape, b: Shape): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let axis = 0; axis < a.length; axis++) if (a[axis] !== b[axis]) return false;
  return true;
}

export function formatShape(shape: Shape): string {
  return `[${shape.join(", ")}]`;
}

export function badShape(op: string, message: string): HoldfastError {
  return new HoldfastError("BAD_SHAPE", `${op}: ${message}`, { numbers: { op } });
}

/** The shape to which these shapes broadcast: aligned at their last axes, each size equal or 1. */
export function broadcastShapes(op: string, shapes: readonly Shape[]): Shape {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  const result: number[] = new Array(rank).fill(1);
  for (const shape of shapes) {
    for (const [index, size] of shape.entries()) {
      const axis = rank - shape.length + index;
      const other = result[axis] ?? 1;
      if (size === other || size === 1) continue;
      if (other !== 1) {
        throw badShape(
          op,
          `shapes ${shapes.map(formatShape).join(" and ")} don't broadcast: axis ${axis - rank} has ${other} and ${size}. ` +
            "Counted from the last axis, sizes must be equal or 1.",
        );
      }
      result[axis] = size;
    }
  }
  return result;
}

/** An axis counted from either end, as an index from the front. */
export function axisOf(op: string, axis: number, rank: number): number {
  const index = axis < 0 ? axis + rank : axis;
  if (Number.isInteger(axis) && index >= 0 && index < rank) return index;
  if (typeof axis !== "number") throw badAxis(op, axis);
  const validAxes = rank === 0 ? "a tensor of 0 axes has none" : `valid axes are ${-rank} to ${rank - 1}`;
  throw badShape(op, `axis ${axis} of a tensor of ${rank} axes; ${validAxes}.`);
}

/** Programs without types may pass options in place of axes. */
function badAxis(op: string, axis: unknown): HoldfastError {
  const given =
    typeof axis === "object" && axis !== null
      ? `an object with ${Object.keys(axis).join(", ")}`
      : String(axis);
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${op} got ${given} as its axes. Pass a number or a list of numbers, and options after them: x.sum(1, { keepdim: true }).`,
    { numbers: { op } },
  );
}

/** Distinct axes in ascending order. Default: all axes. */
export function axesOf(op: string, axes: number | readonly number[] | undefined, rank: number): number[] {
  if (axes === undefined) return Array.from({ length: rank }, (_, axis) => axis);
  if (typeof axes !== "number" && !Array.isArray(axes)) throw badAxis(op, axes);
  const resolved = (typeof axes === "number" ? [axes] : axes).map((axis) => axisOf(op, axis, rank));
  const repeated = resolved.find((axis, index) => resolved.indexOf(axis) !== index);
  if (repeated !== undefined)
    throw badShape(op, `axis ${repeated} is named twice in ${formatShape(resolved)}.`);
  return resolved.sort((a, b) => a - b);
}

/** The shape after a reduction of axes. */
export function reducedShape(shape: Shape, axes: readonly number[], keepsAxes: boolean): Shape {
  if (keepsAxes) return shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
  return shape.filter((_, axis) => !axes.includes(axis));
}

export function requireSize(op: string, size: number, what: string): void {
  if (Number.isSafeInteger(size) && size >= 0) return;
  throw badShape(op, `${what} is ${size}; a size is a whole number, 0 or more.`);
}

/** Rejects sizes or axes that are not in an array: callers in JavaScript may pass them as separate arguments, as in PyTorch. */
export function requireList(op: string, list: readonly number[], what: "shape" | "axes"): void {
  if (Array.isArray(list)) return;
  const advice = what === "shape" ? "the shape is" : "the axes are";
  const all =
    what === "shape" ? "all sizes in an array, such as [2, 3]" : "all axes in an array, such as [1, 0]";
  throw badShape(op, `${advice} ${String(list)}; pass ${all}.`);
}

/** Rejects invalid shapes. */
export function requireShape(op: string, shape: Shape): void {
  requireList(op, shape, "shape");
  for (const [axis, size] of shape.entries()) requireSize(op, size, `axis ${axis} of ${formatShape(shape)}`);
  if (!Number.isSafeInteger(sizeOf(shape)))
    throw badShape(op, `${formatShape(shape)} has more elements than can be counted.`);
}
