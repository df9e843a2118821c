/** Iteration spaces from shapes and strides: merged axes, separate axes, rejected shapes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { innerStrideOf, iterateElements, iterateRows } from "./iteration.js";

test("axes that are contiguous in every operand become one vector", () => {
  const strides = [1230, 41, 1];
  assert.deepEqual(iterateElements([10, 30, 41], [strides, strides]), {
    kind: "elements",
    outer: [],
    row: { size: 12_300, strides: [1, 1] },
    rows: 1,
    elements: 12_300,
  });
});

test("the axes of a broadcast operand are not merged", () => {
  const strides = [
    [100, 1],
    [0, 1],
    [1, 0],
  ];
  assert.deepEqual(iterateElements([6, 100], strides), {
    kind: "elements",
    outer: [{ size: 6, strides: [100, 0, 1] }],
    row: { size: 100, strides: [1, 1, 0] },
    rows: 6,
    elements: 600,
  });
});

test("an axis is merged with one neighbour if it cannot be merged with the other", () => {
  // A middle axis of a permuted operand that steps over the last one, but under the first.
  const { outer, row } = iterateElements(
    [3, 4, 5],
    [
      [1, 15, 3],
      [20, 5, 1],
    ],
  );
  assert.deepEqual(outer, [{ size: 3, strides: [1, 20] }]);
  assert.deepEqual(row, { size: 20, strides: [3, 1] });
});

test("axes of size one, and no axes, give a row of one element", () => {
  for (const shape of [[], [1], [1, 1, 1]]) {
    const strides = shape.map(() => 7);
    const { outer, row, rows, elements } = iterateElements(shape, [strides, strides]);
    assert.deepEqual([outer, row.size, rows, elements], [[], 1, 1, 1]);
    assert.equal(innerStrideOf(row, 0), "unit");
  }
});

test("an empty axis gives no elements, at every position and with every stride", () => {
  for (const shape of [[0], [4, 0], [0, 4], [4, 0, 3], [3, 4, 0]]) {
    const strides = [shape.map((_, axis) => axis + 1), shape.map(() => 0), shape.map((_, axis) => 7 - axis)];
    const { outer, row, elements } = iterateElements(shape, strides);
    assert.deepEqual([outer, row.size, elements], [[], 0, 0], `[${shape}]`);
    for (const operand of strides.keys()) assert.equal(innerStrideOf(row, operand), "unit", `[${shape}]`);
  }
});

test("an empty row is a row, which reduces to the identity; no rows are none", () => {
  const strides = [
    [0, 9, 1, 5],
    [1, 0, 0, 0],
  ];
  const { row, rows } = iterateRows([4, 2, 0, 3], strides, 3);
  assert.deepEqual([rows, row.size], [4, 0]);
  assert.equal(iterateRows([4, 0, 2, 3], strides, 1).rows, 0);
});

test("transposed and stretched operands have strides, and flipped operands negative strides", () => {
  const strides = [
    [1, 3],
    [5, 1],
    [3, 0],
    [3, -1],
  ];
  const { row } = iterateElements([3, 5], strides);
  assert.deepEqual(row.strides, [3, 1, 0, -1]);
  assert.deepEqual(
    strides.map((_, operand) => innerStrideOf(row, operand)),
    ["any", "unit", "none", "any"],
  );
});

test("rows are the last axes, merged if they are contiguous, and rejected otherwise", () => {
  const strides = [
    [12, 4, 1],
    [1, 0, 0],
  ];
  assert.deepEqual(iterateRows([8, 3, 4], strides, 2), {
    kind: "rows",
    outer: [{ size: 8, strides: [12, 1] }],
    row: { size: 12, strides: [1, 0] },
    rows: 8,
    elements: 96,
  });
  rejects("UNSUPPORTED", () => iterateRows([8, 3, 4], [[12, 1, 3]], 2), /last 2 axes of \[8, 3, 4\]/);
});

test("elements are visited in the order of the output in memory", () => {
  const [rows, channels, side] = [2, 3, 5];
  const channelsLast = [channels * side, 1, channels];
  assert.deepEqual(iterateElements([rows, channels, side], [channelsLast, channelsLast]).outer, []);
  const { outer, row } = iterateElements([rows, channels, side], [[channels * side, side, 1], channelsLast]);
  assert.deepEqual(row, { size: channels, strides: [side, 1] });
  assert.deepEqual(outer, [
    { size: rows, strides: [15, 15] },
    { size: side, strides: [1, channels] },
  ]);
});
