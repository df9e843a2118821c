/**
 * Generates shapes, values and operands for op cases. Shapes shrink; values depend on a random seed and
 * don't.
 */

import fc from "fast-check";
import type { Dtype } from "../../../src/ir/index.js";
import type { Attributes, Shape } from "../../../src/ops/index.js";
import type { CaseCall, CaseOperand, LayoutName, TensorOperand } from "./op-case.js";

/** Maps a number in [0, 1) to a value. */
export type Values = (random: () => number) => number;

export function between(low: number, high: number): Values {
  return (random) => low + (high - low) * random();
}

/** Integers from `low` to `high`, inclusive: for indices and integer operands. */
export function whole(low: number, high: number): Values {
  return (random) => low + Math.floor((high - low + 1) * random());
}

/** The same, but never within `gap` of one of these points. */
export function awayFrom(points: readonly number[], values: Values, gap = 0.02): Values {
  return (random) => {
    for (;;) {
      const value = values(random);
      if (points.every((point) => Math.abs(value - point) >= gap)) return value;
    }
  };
}

export interface ShapeOptions {
  /** The maximal number of elements; default: 40. */
  readonly elements?: number;
  /** The minimal and maximal number of axes; default: 0 to 5. */
  readonly axes?: readonly [fewest: number, most: number];
  /** True if an axis of size 0 is allowed. Default: true. */
  readonly canBeEmpty?: boolean;
}

/** Shapes with odd, even, one and no elements, square and not. */
export function anyShape({
  elements = 40,
  axes: [fewest, max] = [0, 5],
  canBeEmpty = true,
}: ShapeOptions = {}): fc.Arbitrary<Shape> {
  const sizes = fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom(1, 2, 3, 4, 5, 7) },
    { weight: 2, arbitrary: fc.integer({ min: 1, max: Math.max(1, elements) }) },
    { weight: canBeEmpty ? 1 : 0, arbitrary: fc.constant(0) },
  );
  const axes = { minLength: fewest, maxLength: max };
  const shapes = fc.array(sizes, axes).map((shape) => limited(shape, elements));
  const square = fc
    .integer({ min: 2, max: Math.max(2, Math.floor(Math.sqrt(elements))) })
    .map((side): Shape => [side, side]);
  return fewest <= 2 && max >= 2
    ? fc.oneof({ weight: 7, arbitrary: shapes }, { weight: 1, arbitrary: square })
    : shapes;
}

/** One axis's size. */
export function anySize(max = 7, fewest = 1): fc.Arbitrary<number> {
  return fc.integer({ min: fewest, max });
}

/** Shapes of several operands that broadcast with each other: axes of size 1, and leading axes omitted. */
export function broadcastShapesOf(count: number, options: ShapeOptions = {}): fc.Arbitrary<readonly Shape[]> {
  return anyShape(options).chain((shape) => {
    const anyOne = fc
      .tuple(
        fc.integer({ min: 0, max: shape.length }),
        fc.array(fc.boolean(), { maxLength: shape.length, minLength: shape.length }),
      )
      .map(([left, isBroadcast]) => shape.map((size, axis) => (isBroadcast[axis] ? 1 : size)).slice(left));
    const each = fc.oneof(fc.constant(shape), anyOne);
    return fc.tuple(...Array.from({ length: count }, () => each));
  });
}

/** An axis of a shape, counted from either end. The shape must have one. */
export function anyAxis({ length }: Shape): fc.Arbitrary<number> {
  return fc.integer({ min: -length, max: length - 1 });
}

/** Some of a shape's axes, counted from either end; perhaps none. */
export function someAxes({ length }: Shape): fc.Arbitrary<readonly number[]> {
  const allAxes = Array.from({ length }, (_, axis) => axis);
  return fc
    .tuple(fc.shuffledSubarray(allAxes), fc.boolean())
    .map(([axes, fromEnd]) => axes.map((axis) => (fromEnd ? axis - length : axis)));
}

export interface OperandOptions {
  /** Default: -2 to 2. */
  readonly values?: Values;
  /** No two elements are closer than a hundredth: for ops that select one. Then `values` is not used. */
  readonly isDistinct?: boolean;
  readonly dtype?: Dtype | "float";
  /** Default: all layouts; a broadcast operand has equal elements, which are a tie. */
  readonly layouts?: readonly LayoutName[];
}

const everyLayout: readonly LayoutName[] = ["contiguous", "transposed", "offset", "stepped", "broadcast"];
const withoutBroadcast = everyLayout.filter((layout) => layout !== "broadcast");

export function operand(shape: Shape, options: OperandOptions = {}): fc.Arbitrary<TensorOperand> {
  const { values = between(-2, 2), isDistinct = false, dtype = "float" } = options;
  const layouts = options.layouts ?? (isDistinct ? withoutBroadcast : everyLayout);
  return fc
    .tuple(fc.constantFrom(...layouts), fc.integer({ min: 1, max: 2 ** 31 - 1 }))
    .map(([layout, seed]) => {
      const random = randomFrom(seed);
      const count = shape.reduce((total, size) => total * size, 1);
      // Exact in f32, so that f32 and f64 compute on the same numbers.
      const elements = isDistinct
        ? distinctValues(count, random)
        : Array.from({ length: count }, () => Math.fround(values(random)));
      return {
        shape,
        dtype,
        layout,
        values: layout === "broadcast" ? broadcastValues(elements, shape) : elements,
      };
    });
}

/** A call with these operands. */
export function call<A extends Attributes>(
  operands: readonly (fc.Arbitrary<CaseOperand> | number | "randomState")[],
  attributes: fc.Arbitrary<A>,
): fc.Arbitrary<CaseCall<A>>;
export function call(
  operands: readonly (fc.Arbitrary<CaseOperand> | number | "randomState")[],
): fc.Arbitrary<CaseCall<Readonly<Record<never, never>>>>;
export function call(
  operands: readonly (fc.Arbitrary<CaseOperand> | number | "randomState")[],
  attributes: fc.Arbitrary<Attributes> = fc.constant({}),
): fc.Arbitrary<CaseCall> {
  const arbitraries = operands.map((operandOf) =>
    typeof operandOf === "object" ? operandOf : fc.constant(operandOf),
  );
  return fc.record({ operands: fc.tuple(...arbitraries), attributes });
}

/** The axis of a broadcast layout with stride 0; undefined for others. */
export function broadcastAxis(shape: Shape): number | undefined {
  const axis = shape.findIndex((size) => size > 1);
  return axis < 0 ? undefined : axis;
}

/** Sets every element along the broadcast axis to the first. */
function broadcastValues(values: readonly number[], shape: Shape): number[] {
  const axis = broadcastAxis(shape);
  if (axis === undefined) return [...values];
  const inner = shape.slice(axis + 1).reduce((count, size) => count * size, 1);
  // All axes before it have size 1.
  return values.map((_, index) => values[index % inner]!);
}

function limited(shape: Shape, elements: number): Shape {
  let left = Math.max(1, elements);
  return shape.map((size) => {
    const fitting = Math.min(size, left);
    left = Math.max(1, Math.floor(left / Math.max(1, fitting)));
    return fitting;
  });
}

/** In random order, from about -2 to 2, with gaps of at least a quarter of their mean distance. */
function distinctValues(count: number, random: () => number): number[] {
  const spacing = Math.max(4 / Math.max(1, count), 0.04);
  const values = Array.from({ length: count }, (_, rank) =>
    Math.fround(-2 + spacing * (rank + 0.75 * random())),
  );
  for (let last = count - 1; last > 0; last--) {
    const other = Math.floor((last + 1) * random());
    [values[last], values[other]] = [values[other]!, values[last]!];
  }
  return values;
}

/** A small generator of numbers in [0, 1) (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
