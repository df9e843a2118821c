/** From shapes and strides to rows and blocks: what merges, what is cut, what is refused. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { refuses } from "../../test/support/refuses.js";
import { iterateElements, iterateRows } from "./iteration.js";

test("axes that lie behind each other in every operand become one vector, cut into rows of a block each", () => {
  const { layout, blocks, sizes } = iterateElements(
    [10, 30, 41],
    [
      [1230, 41, 1],
      [1230, 41, 1],
    ],
  );
  assert.deepEqual(layout, { outerRank: 1, inner: ["unit", "unit"] });
  assert.equal(blocks, 4);
  assert.deepEqual(sizes, [4, 4096, 1, 12_300, 4, 4096, 4096]);
});

test("a broadcast operand keeps its axes apart", () => {
  const { layout, blocks, sizes } = iterateElements(
    [6, 100],
    [
      [100, 1],
      [0, 1],
      [1, 0],
    ],
  );
  assert.deepEqual(layout, { outerRank: 1, inner: ["unit", "unit", "none"] });
  assert.equal(blocks, 1);
  assert.deepEqual(sizes, [6, 100, 40, 600, 6, 100, 0, 1]);
});

test("axes of size one, and no axes at all, leave a row of one element", () => {
  for (const shape of [[], [1], [1, 1, 1]]) {
    const strides = shape.map(() => 0);
    const { layout, blocks, sizes } = iterateElements(shape, [strides, strides]);
    assert.deepEqual(layout, { outerRank: 1, inner: ["unit", "unit"] });
    assert.equal(blocks, 1);
    assert.deepEqual(sizes.slice(0, 4), [1, 1, 4096, 1]);
  }
});

test("an empty axis leaves no elements, wherever it stands and however the operands step", () => {
  for (const shape of [[0], [4, 0], [0, 4], [4, 0, 3], [3, 4, 0]]) {
    const strides = [shape.map((_, axis) => axis + 1), shape.map(() => 0), shape.map((_, axis) => 7 - axis)];
    const { layout, blocks, sizes } = iterateElements(shape, strides);
    assert.equal(blocks, 0, `[${shape}]`);
    assert.deepEqual(layout.inner, ["unit", "unit", "unit"], `[${shape}]`);
    assert.equal(sizes[3], 0, `[${shape}]`);
  }
});

test("an empty row stays a row, which a reduction leaves at its start", () => {
  const { layout, blocks, sizes } = iterateRows(
    [4, 2, 0, 3],
    [
      [0, 9, 1, 5],
      [1, 0, 0, 0],
    ],
    3,
  );
  assert.equal(blocks, 1);
  assert.deepEqual(layout.inner, ["unit", "unit"]);
  assert.deepEqual(sizes.slice(0, 2), [4, 0]);
});

test("an empty axis leaves nothing to do", () => {
  assert.equal(
    iterateElements(
      [4, 0, 3],
      [
        [0, 3, 1],
        [0, 3, 1],
      ],
    ).blocks,
    0,
  );
  assert.equal(
    iterateRows(
      [0, 5],
      [
        [5, 1],
        [1, 0],
      ],
      1,
    ).blocks,
    0,
  );
});

test("a transposed or stretched operand is stepped through, and a flipped one backwards", () => {
  const { layout, sizes } = iterateElements(
    [3, 5],
    [
      [1, 3],
      [5, 1],
    ],
  );
  assert.deepEqual(layout.inner, ["any", "unit"]);
  assert.equal(sizes.at(-2), 3);
  const flipped = iterateElements([7], [[-1], [1]]);
  assert.deepEqual(flipped.layout.inner, ["any", "unit"]);
  assert.ok(flipped.sizes.includes(2 ** 32 - 1));
});

test("rows are the last axes, as one where they lie behind each other, and refused where they don't", () => {
  const { layout, sizes } = iterateRows(
    [8, 3, 4],
    [
      [12, 4, 1],
      [1, 0, 0],
    ],
    2,
  );
  assert.deepEqual(layout, { outerRank: 1, inner: ["unit", "none"] });
  assert.deepEqual(sizes.slice(0, 2), [8, 12]);
  refuses("UNSUPPORTED", () => iterateRows([8, 3, 4], [[12, 1, 3]], 2), /last 2 axes of \[8, 3, 4\]/);
});
