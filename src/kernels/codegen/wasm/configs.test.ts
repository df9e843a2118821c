/** The division of iterations into blocks for CPU threads, and the launch parameters. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { RowKernel } from "../../../ir/index.js";
import { iterateElements, iterateRows } from "../../../ir/index.js";
import { wasmRowConfig } from "./configs.js";

const kernel: RowKernel = { name: "any", inputs: [], outputs: [], scalars: [], stages: [] };

test("a long vector is divided into rows of one block each, the last one shorter", () => {
  const strides = [1230, 41, 1];
  const { key, blocks, sizes } = wasmRowConfig(kernel, iterateElements([10, 30, 41], [strides, strides]));
  assert.equal(key, "1 unit unit");
  assert.equal(blocks, 4);
  assert.deepEqual(sizes, [4, 4096, 1, 12_300, 4, 4096, 4096]);
});

test("short rows share a block", () => {
  const strides = [
    [100, 1],
    [0, 1],
    [1, 0],
  ];
  const { key, blocks, sizes } = wasmRowConfig(kernel, iterateElements([6, 100], strides));
  assert.equal(key, "1 unit unit none");
  assert.equal(blocks, 1);
  assert.deepEqual(sizes, [6, 100, 40, 600, 6, 100, 0, 1]);
});

test("a reduced row is never divided", () => {
  const strides = [[1], [0]];
  const { key, blocks, sizes } = wasmRowConfig(kernel, iterateRows([9000], strides, 1));
  assert.equal(key, "0 unit none");
  assert.equal(blocks, 1);
  assert.deepEqual(sizes, [1, 9000, 1, 9000]);
});

test("empty rows have blocks, and no rows have none", () => {
  const strides = [
    [0, 1],
    [1, 0],
  ];
  assert.equal(wasmRowConfig(kernel, iterateRows([4, 0], strides, 1)).blocks, 1);
  assert.equal(wasmRowConfig(kernel, iterateRows([0, 4], strides, 1)).blocks, 0);
});

test("negative strides are passed as their 32-bit pattern", () => {
  const { key, sizes } = wasmRowConfig(kernel, iterateElements([7], [[-1], [1]]));
  assert.equal(key, "1 any unit");
  // Of each operand the step over a row; of the first also that along it.
  assert.deepEqual(sizes.slice(5), [2 ** 32 - 7, 2 ** 32 - 1, 7]);
});
