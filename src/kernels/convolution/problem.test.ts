/** A convolution whose sizes do not fit is rejected before it is lowered. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { geometry } from "../../../test/support/random-convolutions.js";
import type { Storage } from "../../runtime/index.js";
import { convolutionCalls } from "./convolution.js";
import { type ConvolutionProblem, elementCounts } from "./problem.js";

const storageOf = (size: number): Storage =>
  ({ label: "operand", span: { address: 0, size } }) as unknown as Storage;

const shape = geometry({
  batch: 2,
  channels: 3,
  outChannels: 4,
  size: [5, 6],
  kernel: [3, 2],
  stride: [2, 1],
});
const counts = elementCounts({ ...shape, direction: "forward", dtype: "f32" });
const valid: ConvolutionProblem = {
  ...{ ...shape, direction: "forward", dtype: "f32" },
  ...{ x: storageOf(4 * counts.x), weight: storageOf(4 * counts.weight), y: storageOf(4 * counts.y) },
};

test("elements are those of the shapes", () => {
  assert.deepEqual(counts, { x: 2 * 3 * 5 * 6, weight: 4 * 3 * 3 * 2, y: 2 * 4 * 2 * 5 });
  assert.equal(convolutionCalls(valid).length, 1);
});

test("without images there is nothing to compute", () => {
  assert.deepEqual(convolutionCalls({ ...valid, batch: 0 }), []);
});

const faults: Readonly<Record<string, readonly [Partial<ConvolutionProblem>, RegExp]>> = {
  "a small operand": [{ x: storageOf(4 * counts.x - 4) }, /x takes 720 bytes, and "operand" has 716/],
  "a small result": [{ y: storageOf(0) }, /y takes 320 bytes/],
  "windows beyond the border": [
    { outSize: [3, 5] },
    /3 windows along axis 0 reach over 7 elements, and there are 5/,
  ],
  "a stride of 0": [{ stride: [0, 1] }, /stride is 0; pass a whole number from 1/],
  "half a channel": [{ channels: 1.5 }, /channels is 1\.5/],
  "the bias of a weight's gradient": [
    { direction: "weight-gradient", bias: storageOf(16) },
    /a weight gradient has no bias/,
  ],
  "a small bias": [{ bias: storageOf(12) }, /bias takes 16 bytes/],
};

for (const [name, [fault, message]] of Object.entries(faults)) {
  test(`${name} is rejected`, () => {
    assert.throws(() => convolutionCalls({ ...valid, ...fault }), { code: "BAD_ARGUMENT", message });
  });
}

test("an operand with more elements than 31 bits can count is rejected", () => {
  const batch = 2 ** 26;
  assert.throws(() => convolutionCalls({ ...valid, batch }), {
    code: "BAD_SIZE",
    message: /Split the batch/,
  });
});
