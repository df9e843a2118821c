/** Elementwise work over a buffer of interleaved views is split along them; all else stays as it is. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rewritten } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import type { Call, RowCall } from "../program/program.js";
import { splitElementwise as splitElementwiseIn } from "./split-elementwise.js";

const splitElementwise = (calls: readonly Call[]): readonly Call[] => rewritten(calls, splitElementwiseIn);

const [rows, columns] = [6, 8];

/** Columns of a matrix from `first` on, each `step` blocks of `width` apart. */
function blocks(matrix: View, first: number, width: number): View {
  const count = columns / width / 2;
  const size = 4 * ((rows - 1) * columns + (count - 1) * 2 * width + width);
  const slice = { ...matrix.slice, offset: matrix.slice.offset + 4 * first, size };
  return { ...matrix, slice, shape: [rows, count, width], strides: [columns, 2 * width, 1] };
}

const read = (label: string): View => bufferOf([rows, columns / 4, 2], { label });
const matrix = (label: string): View => bufferOf([rows, columns], { label });

/** Two calls write the even and the odd pairs of columns of `made`; a third reads all of them. */
function program({ second = 2, others = false } = {}): readonly Call[] {
  const [x, made, result, other] = [read("x"), matrix("made"), matrix("result"), read("other")];
  return [
    elementwise("exp", (value) => term.exp(value), [x], blocks(made, 0, 2)),
    elementwise("neg", (value) => term.neg(value), [others ? other : x], blocks(made, second, 2)),
    elementwise("abs", (value) => term.abs(value), [made], result),
    elementwise("half", (value) => term.mul(value, 0.5), [result], matrix("halves")),
  ];
}

const namesOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);

test("a call over all views becomes one for each view, and so do the calls after it", () => {
  const calls = splitElementwise(program());
  assert.deepEqual(namesOf(calls), ["exp", "neg", "abs", "abs", "half", "half"]);
  const [first, second] = [calls[0]!.work as RowCall, calls[3]!.work as RowCall];
  assert.deepEqual(
    second.operands.map(({ offset, size }) => [offset, size]),
    [
      [8, first.operands[1]!.size],
      [8, first.operands[1]!.size],
    ],
  );
  assert.equal(second.iteration.elements, (rows * columns) / 2);
  for (const { strides } of [...second.iteration.outer, second.iteration.row])
    assert.equal(strides[0], strides[1]);
});

test("views that overlap, or leave elements out, or come from different inputs, are not split", () => {
  for (const options of [{ second: 1 }, { second: 0 }, { others: true }]) {
    const calls = program(options);
    assert.deepEqual(namesOf(splitElementwise(calls)), namesOf(calls), JSON.stringify(options));
  }
  const [first, , ...rest] = program();
  assert.deepEqual(namesOf(splitElementwise([first!, ...rest])), ["exp", "abs", "half"]);
});
