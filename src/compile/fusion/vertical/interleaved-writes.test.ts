/** Small calls that write interleaved views of one buffer, such as concatenated columns, become one call on a GPU. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../../test/support/row-calls.js";
import { term } from "../../../ir/index.js";
import type { Runtime } from "../../../runtime/index.js";
import type { Call } from "../../program/program.js";
import { fuse as fuseIn } from "./fuse.js";

const fuse = onCalls(fuseIn);
const [rows, columns] = [64, 16];

const on = (kind: "cpu" | "cuda", parallelism: number): Runtime =>
  ({ device: { kind, parallelism } }) as unknown as Runtime;

/** Columns of a matrix from `first` on. */
function columnsFrom(matrix: View, first: number): View {
  const [pitch = 1] = matrix.strides;
  const slice = { ...matrix.slice, offset: 4 * first, size: 4 * ((rows - 1) * pitch + columns) };
  return { ...matrix, slice, shape: [rows, columns], strides: [pitch, 1] };
}

/** Two calls that share no input; the second one writes the columns from `second` on. */
function program(second = columns): readonly Call[] {
  const matrix = bufferOf([rows, 2 * columns], { label: "matrix", address: 0x1000 });
  const [a, b] = [bufferOf([rows, columns]), bufferOf([rows, columns])];
  return [
    elementwise("exp", term.exp, [a], columnsFrom(matrix, 0)),
    elementwise("neg", term.neg, [b], columnsFrom(matrix, second)),
  ];
}

const opsOf = (runtime: Runtime, calls: readonly Call[]): string[] =>
  fuse(runtime, calls).map(({ op }) => op);

test("on a GPU one launch writes all columns, if it takes little longer than a launch", () => {
  assert.deepEqual(opsOf(on("cuda", 132), program()), ["exp + neg"]);
  // With so few multiprocessors, 16 KiB are more than a launch takes.
  assert.deepEqual(opsOf(on("cuda", 0.01), program()), ["exp", "neg"]);
  assert.deepEqual(opsOf(on("cpu", 132), program()), ["exp", "neg"]);
});

test("columns that overlap are written one after the other", () => {
  assert.deepEqual(opsOf(on("cuda", 132), program(columns / 2)), ["exp", "neg"]);
});
