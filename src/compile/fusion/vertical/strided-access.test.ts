/** Steps: what two calls over other axes have in common. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type Iteration, iterateElements, iterateRows } from "../../../ir/index.js";
import {
  areDistinct,
  areInterleaved,
  areRowInvariant,
  combineSplits,
  iterationOf,
  type PlacedAccess,
  type StridedAccess,
  stridedAccess,
} from "./strided-access.js";

/** Where an operand stands at each point, counted the long way. */
function placesOf({ outer, row, elements }: Iteration, operand: number): number[] {
  const axes = [...outer, row];
  return Array.from({ length: elements }, (_, point) => {
    let [rest, place] = [point, 0];
    for (const { size, strides } of axes.toReversed()) {
      place += (rest % size) * strides[operand]!;
      rest = Math.floor(rest / size);
    }
    return place;
  });
}

type Placed = PlacedAccess & { readonly touched: ReadonlySet<number> };

const shapes = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 });
const strides = fc.array(fc.integer({ min: -3, max: 12 }), { minLength: 4, maxLength: 4 });

test("steps lead through the elements of the iteration that they were made of, and back to one like it", () => {
  fc.assert(
    fc.property(shapes, fc.array(strides, { minLength: 1, maxLength: 3 }), (shape, operands) => {
      const given = iterateElements(shape, operands);
      const all = operands.map((_, operand) => stridedAccess(given, operand, "element"));
      const made = iterationOf(all, given.elements);
      assert.ok(made);
      for (const operand of operands.keys()) {
        assert.deepEqual(placesOf(made, operand), placesOf(given, operand));
      }
    }),
  );
});

test("operands that stand at the same elements have the same steps, whatever axes they were given by", () => {
  fc.assert(
    fc.property(shapes, strides, shapes, strides, (shape, own, other, others) => {
      const [a, b] = [iterateElements(shape, [own]), iterateElements(other, [others])];
      const [ofA, ofB] = [stridedAccess(a, 0, "element"), stridedAccess(b, 0, "element")];
      const isSame = JSON.stringify(placesOf(a, 0)) === JSON.stringify(placesOf(b, 0));
      assert.equal(JSON.stringify(ofA) === JSON.stringify(ofB), isSame);
    }),
    { numRuns: 500 },
  );
});

test("a value for each row stands still along rows", () => {
  const rows = iterateRows([3, 4], [[1, 7]], 1);
  assert.deepEqual(
    placesOf(iterationOf([stridedAccess(rows, 0, "row")], 12)!, 0),
    [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
  );
  assert.deepEqual(areRowInvariant([{ size: 3, stride: 1 }], 4), stridedAccess(rows, 0, "row"));
});

test("axes whose ends don't divide each other have no iteration, and rows none that turns inside of them", () => {
  const byThree: StridedAccess = combineSplits([
    { size: 3, stride: 1 },
    { size: 4, stride: 5 },
  ]);
  const byFour: StridedAccess = combineSplits([
    { size: 4, stride: 1 },
    { size: 3, stride: 5 },
  ]);
  const plain: StridedAccess = [{ size: 12, stride: 1 }];
  assert.equal(iterationOf([byThree, byFour], 12), undefined);
  assert.ok(iterationOf([byThree, plain], 12));
  assert.equal(iterationOf([byThree, plain], 12, 6), undefined);
  assert.equal(iterationOf([byThree, plain], 12, 3)?.rows, 4);
});

test("elements are distinct where no two points meet", () => {
  fc.assert(
    fc.property(shapes, strides, (shape, own) => {
      const given = iterateElements(shape, [own]);
      const places = placesOf(given, 0);
      if (areDistinct(stridedAccess(given, 0, "element"))) assert.equal(new Set(places).size, places.length);
    }),
  );
  assert.ok(
    areDistinct(
      combineSplits([
        { size: 3, stride: 4 },
        { size: 4, stride: 1 },
      ]),
    ),
  );
  assert.ok(!areDistinct([{ size: 3, stride: 0 }]));
});

test("accesses that interleave share no byte", () => {
  const bytes = fc.constantFrom(2, 4);
  const access = fc.record({ shape: shapes, own: strides, from: fc.nat({ max: 24 }), bytes });
  let found = 0;
  fc.assert(
    fc.property(access, access, (one, other) => {
      const [a, b] = [one, other].map(({ shape, own, from, bytes: elementBytes }) => {
        const iteration = iterateElements(shape, [own]);
        const touched = placesOf(iteration, 0).flatMap((place) =>
          Array.from({ length: elementBytes }, (_, byte) => 2 * from + place * elementBytes + byte),
        );
        const steps = stridedAccess(iteration, 0, "element");
        return { from: 2 * from, steps, elementBytes, touched: new Set(touched) };
      }) as unknown as [Placed, Placed];
      if (!areInterleaved(a, b)) return;
      found++;
      assert.ok([...a.touched].every((byte) => !b.touched.has(byte)));
    }),
    { numRuns: 1000 },
  );
  assert.ok(found > 20, `${found} interleave`);
});

test("blocks of columns interleave, and blocks with a column in common do not", () => {
  // [4, 3, 8] of f32: the middle axis has three blocks of eight columns.
  const block = (first: number, columns: number): PlacedAccess => ({
    from: 4 * first,
    steps: [
      { size: columns, stride: 1 },
      { size: 4, stride: 24 },
    ],
    elementBytes: 4,
  });
  assert.ok(areInterleaved(block(0, 8), block(8, 8)));
  assert.ok(areInterleaved(block(16, 8), block(0, 16)));
  assert.ok(!areInterleaved(block(0, 9), block(8, 8)));
  // The second one's last columns are in the next row of the first one.
  assert.ok(!areInterleaved(block(0, 8), block(20, 8)));
});
