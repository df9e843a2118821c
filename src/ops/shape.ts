/** Shapes and axes, with rejections that name the op, what it was given and what would fit. */

import { HoldfastError } from "../errors/index.js";

export type Shape = readonly number[];

// These two are asked several times in every call of an op: loops, because they make no closures.
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

/** The shape to which all of these stretch: aligned at their last axes, each size equal or 1. */
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

/** An axis counted from either end, as a place from the front. */
export function axisOf(op: string, axis: number, rank: number): number {
  const place = axis < 0 ? axis + rank : axis;
  if (Number.isInteger(axis) && place >= 0 && place < rank) return place;
  const fits = rank === 0 ? "a tensor of 0 axes has none" : `it has ${-rank} to ${rank - 1}`;
  throw badShape(op, `axis ${axis} of a tensor of ${rank} axes; ${fits}.`);
}

/** Axes in ascending order, each once; all of them where none are named. */
export function axesOf(op: string, axes: number | readonly number[] | undefined, rank: number): number[] {
  if (axes === undefined) return Array.from({ length: rank }, (_, axis) => axis);
  const places = (typeof axes === "number" ? [axes] : axes).map((axis) => axisOf(op, axis, rank));
  const repeated = places.find((place, index) => places.indexOf(place) !== index);
  if (repeated !== undefined)
    throw badShape(op, `axis ${repeated} is named twice in ${formatShape(places)}.`);
  return places.sort((a, b) => a - b);
}

/** What is left of a shape when axes are reduced. */
export function reducedShape(shape: Shape, axes: readonly number[], keepsAxes: boolean): Shape {
  if (keepsAxes) return shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
  return shape.filter((_, axis) => !axes.includes(axis));
}

export function requireSize(op: string, size: number, what: string): void {
  if (Number.isSafeInteger(size) && size >= 0) return;
  throw badShape(op, `${what} is ${size}; a size is a whole number of 0 or more.`);
}

/** Rejects what is no shape; JavaScript callers may give sizes one by one. */
export function requireShape(op: string, shape: Shape): void {
  if (!Array.isArray(shape))
    throw badShape(op, `the shape is ${String(shape)}; give all sizes in an array, as [2, 3].`);
  for (const [axis, size] of shape.entries()) requireSize(op, size, `axis ${axis} of ${formatShape(shape)}`);
  if (!Number.isSafeInteger(sizeOf(shape)))
    throw badShape(op, `${formatShape(shape)} has more elements than can be counted.`);
}
