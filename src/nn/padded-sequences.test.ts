/** Padding of sequences, and its inverse: values, gradients, and errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { type Tensor, tensor } from "../tensor/index.js";
import { padSequence, unpadSequence } from "./padded-sequences.js";

const cpu = openStrictDevice();
const sequences = (): Tensor[] => [
  tensor([[1, 2]]),
  tensor([
    [3, 4],
    [5, 6],
    [7, 8],
  ]),
];

test("sequences are padded to the longest, with the steps or the batch first", () => {
  const byStep = padSequence(sequences(), { paddingValue: 9 });
  assert.deepEqual(byStep.tolist(), [
    [
      [1, 2],
      [3, 4],
    ],
    [
      [9, 9],
      [5, 6],
    ],
    [
      [9, 9],
      [7, 8],
    ],
  ]);
  const byBatch = padSequence(sequences(), { batchFirst: true });
  assert.deepEqual(byBatch.tolist(), [
    [
      [1, 2],
      [0, 0],
      [0, 0],
    ],
    [
      [3, 4],
      [5, 6],
      [7, 8],
    ],
  ]);
  const i32 = padSequence([tensor([1], { dtype: "i32" }), tensor([2, 3], { dtype: "i32" })]);
  assert.deepEqual(
    [i32.dtype, i32.tolist()],
    [
      "i32",
      [
        [1, 2],
        [0, 3],
      ],
    ],
  );
});

test("unpadSequence is the inverse, for lengths in a list or a tensor, and gradients pass through both", () => {
  const given = sequences();
  for (const batchFirst of [true, false]) {
    for (const lengths of [[1, 3], tensor([1, 3], { dtype: "i64" })]) {
      const back = unpadSequence(padSequence(given, { batchFirst }), lengths, { batchFirst });
      assert.deepEqual(
        back.map((x) => x.tolist()),
        given.map((x) => x.tolist()),
      );
    }
  }
  for (const x of given) x.requiresGrad = true;
  cpu.step(() => {
    const [short] = unpadSequence(padSequence(given).square(), [1, 2]);
    short?.sum().backward();
  });
  assert.deepEqual(
    given.map(({ grad }) => grad?.tolist()),
    [
      [[2, 4]],
      [
        [0, 0],
        [0, 0],
        [0, 0],
      ],
    ],
  );
});

test("a compiled step pads", () => {
  const step = cpu.compile((a: Tensor, b: Tensor) => padSequence([a, b]).sum(0));
  assert.deepEqual(step(...(sequences() as [Tensor, Tensor])).tolist(), [
    [1, 2],
    [15, 18],
  ]);
});

test("other shapes and lengths are errors", () => {
  rejects("BAD_SHAPE", () => padSequence([]), /got no sequences/);
  rejects(
    "BAD_SHAPE",
    () => padSequence([tensor([[1, 2]]), tensor([1])]),
    /is \[1\]; all must be \[steps, 2\]/,
  );
  const padded = padSequence(sequences());
  rejects(
    "BAD_ARGUMENT",
    () => unpadSequence(padded, [1]),
    /lengths \[1\] for \[3, 2, 2\].* each of 2 sequences/,
  );
  rejects("BAD_ARGUMENT", () => unpadSequence(padded, [1, 4]), /from 0 to 3/);
});
