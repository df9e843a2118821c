/** Boxes against sets of indices, counted one by one. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { contiguousStrides, type StridedView, sizeOf } from "../ops/index.js";
import { type Box, type BoxRange, boxOfView, splitBoxes, viewOfBox, wholeBox } from "./box.js";

/** The elements of a view of a contiguous array. */
function elementsOf({ shape, strides, offset = 0 }: StridedView): number[] {
  return shape.reduce<number[]>(
    (found, size, axis) =>
      found.flatMap((at) => Array.from({ length: size }, (_, index) => at + index * (strides[axis] ?? 0))),
    [offset],
  );
}

const sorted = (numbers: Iterable<number>): number[] => [...numbers].sort((a, b) => a - b);
const layoutOf = (shape: readonly number[]) => ({ shape, strides: contiguousStrides(shape) });
const elementsOfBox = (shape: readonly number[], box: Box): number[] =>
  elementsOf(viewOfBox(box, layoutOf(shape)));

const shapes = fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 3 });

const rangeIn = (size: number): fc.Arbitrary<BoxRange> =>
  fc.tuple(fc.nat({ max: size - 1 }), fc.integer({ min: 1, max: 3 }), fc.nat({ max: size })).map((drawn) => {
    const [start, step, wanted] = drawn;
    const count = Math.min(wanted, Math.floor((size - 1 - start) / step) + 1);
    return { start, step: count > 1 ? step : 1, count };
  });

const boxIn = (shape: readonly number[]): fc.Arbitrary<Box> => fc.tuple(...shape.map(rangeIn));

test("a view is a box with the same elements, or none", () => {
  const views = fc.record({
    shape: shapes,
    view: fc.record({
      shape: fc.array(fc.nat({ max: 4 }), { maxLength: 4 }),
      strides: fc.array(fc.nat({ max: 12 }), { minLength: 4, maxLength: 4 }),
      offset: fc.nat({ max: 12 }),
    }),
  });
  let boxes = 0;
  fc.assert(
    fc.property(views, ({ shape, view }) => {
      const elements = elementsOf({ ...view, strides: view.strides.slice(0, view.shape.length) });
      fc.pre(elements.every((element) => element < sizeOf(shape)));
      const box = boxOfView(shape, view);
      if (!box) return;
      boxes++;
      assert.deepEqual(sorted(elementsOfBox(shape, box)), sorted(elements));
    }),
    { numRuns: 200 },
  );
  assert.ok(boxes > 20, `${boxes} boxes`);
});

test("a box is found again in its view, also if the view's axes are split, merged or permuted", () => {
  fc.assert(
    fc.property(
      shapes.chain((shape) => fc.tuple(fc.constant(shape), boxIn(shape))),
      ([shape, box]) => {
        const { shape: counts, strides, offset = 0 } = viewOfBox(box, layoutOf(shape));
        fc.pre(!counts.includes(0));
        const reversed = { shape: counts.toReversed(), strides: strides.toReversed(), offset };
        assert.deepEqual(boxOfView(shape, reversed), box);
      },
    ),
  );
  // [4, 6] as [8, 3], as one axis, and as [4, 2, 3] with the axes exchanged: everything.
  for (const view of [
    { shape: [8, 3], strides: [3, 1] },
    { shape: [24], strides: [1] },
    { shape: [3, 2, 4], strides: [1, 3, 6] },
  ])
    assert.deepEqual(boxOfView([4, 6], view), wholeBox([4, 6]));
  assert.equal(boxOfView([4, 6], { shape: [4, 6], strides: [6, 0] }), undefined, "an element twice");
  assert.equal(boxOfView([6], { shape: [3, 2], strides: [1, 1] }), undefined, "overlapping windows");
});

type Split = typeof splitBoxes;

/** Splits boxes, all of them cut out of each other, and compares with sets. Returns how often they were comparable. */
function checkSplits(split: Split): number {
  let compared = 0;
  const cases = shapes.chain((shape) =>
    fc.tuple(fc.constant(shape), fc.array(boxIn(shape), { minLength: 1, maxLength: 5 })),
  );
  fc.assert(
    fc.property(cases, ([shape, boxes]) => {
      let rest: readonly Box[] = [wholeBox(shape)];
      const left = new Set(elementsOfBox(shape, wholeBox(shape)));
      for (const box of boxes) {
        const found = split(rest, box);
        if (!found) return;
        compared++;
        const elements = elementsOfBox(shape, box);
        const inside = found.inside.flatMap((part) => elementsOfBox(shape, part));
        assert.deepEqual(sorted(inside), sorted(elements.filter((element) => left.has(element))));
        for (const element of elements) left.delete(element);
        rest = found.outside;
        assert.deepEqual(sorted(rest.flatMap((part) => elementsOfBox(shape, part))), sorted(left));
      }
    }),
    { numRuns: 200 },
  );
  return compared;
}

test("boxes are split into disjoint boxes inside and outside another", () => {
  const compared = checkSplits(splitBoxes);
  assert.ok(compared > 200, `${compared} compared`);
});

test("red proof: a part that is lost or counted twice is seen", () => {
  const losing: Split = (boxes, box) => {
    const found = splitBoxes(boxes, box);
    return found && { ...found, outside: found.outside.slice(1) };
  };
  const repeating: Split = (boxes, box) => {
    const found = splitBoxes(boxes, box);
    return found && { ...found, inside: [...found.inside, ...found.inside] };
  };
  for (const faulty of [losing, repeating]) assert.throws(() => checkSplits(faulty));
});

test("steps that are no multiples of each other are not compared", () => {
  const along = (step: number): Box => [{ start: 0, step, count: 4 }];
  assert.equal(splitBoxes([along(2)], along(3)), undefined);
  assert.deepEqual(splitBoxes([along(2)], along(4)), {
    inside: [[{ start: 0, step: 4, count: 2 }]],
    outside: [[{ start: 2, step: 4, count: 2 }]],
  });
});
