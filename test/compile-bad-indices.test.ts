/** Bad indices in compiled steps: the read gives NaN, the call changes nothing, and the host gets a report. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { nn, oneHot, optim, type Tensor, tensor, zeros } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { sameBytes } from "./support/same-bytes.js";

const printed: string[] = [];
const device = openStrictDevice({ print: (text) => void printed.push(text) });

const indices = (values: readonly number[]): Tensor => tensor([...values], { device, dtype: "i32" });
const table = (rows: number): Tensor =>
  tensor([...Array(rows).keys()], { device })
    .reshape([rows, 1])
    .add(1);

/** The ops that take indices, each as a function of indices that reads an axis of 4. */
const ops: Readonly<Record<string, (index: Tensor) => Tensor>> = {
  embedding: (index) => nn.functional.embedding(index, table(4)),
  indexSelect: (index) => table(4).indexSelect(0, index),
  gather: (index) => table(4).reshape([4]).gather(0, index),
};

for (const [name, op] of Object.entries(ops)) {
  test(`${name} reads NaN at a bad index and reports the first one with its call and its op`, () => {
    const step = device.compile((index: Tensor) => op(index).reshape([-1]));
    assert.deepEqual(step(indices([0, 3])).tolist(), [1, 4]);
    printed.length = 0;
    assert.deepEqual(step(indices([50_257, 1])).tolist(), [Number.NaN, 2]);
    assert.match(
      printed.join(""),
      new RegExp(
        `^holdfast: call 2 of compiled step: ${name} at \\S+:\\d+ got the index 50257, but .* \\(indices are 0 to 3\\)\\.`,
      ),
    );
    assert.deepEqual(step(indices([2, -1])).tolist(), [3, Number.NaN]);
    assert.equal(printed.length, 1, "reported once");
    const { calls, first } = step.badIndices;
    assert.deepEqual([calls, first?.index, first?.call, first?.op], [2, 50_257, 2, name]);
    step.close();
  });
}

test("oneHot gives a row of zeros for a bad label and counts it", () => {
  const step = device.compile((labels: Tensor) => oneHot(labels, 3));
  assert.deepEqual(step(indices([2, -1])).tolist(), [
    [0, 0, 1],
    [0, 0, 0],
  ]);
  const { calls, first } = step.badIndices;
  assert.deepEqual([calls, first?.index, first?.op], [1, -1, "oneHot"]);
  step.close();
});

test("a label outside the classes is counted, and the ignored label is not", () => {
  const step = device.compile((labels: Tensor) =>
    nn.functional.crossEntropy(zeros([2, 3], { device }), labels),
  );
  assert.ok(step(indices([0, -100])).item() > 0);
  assert.equal(step.badIndices.calls, 0);
  assert.ok(Number.isNaN(step(indices([0, 3])).item()));
  assert.equal(step.badIndices.first?.index, 3);
  step.close();
});

test("the first bad index of a long list is found at any position", () => {
  const places: readonly (readonly [length: number, position: number])[] = effort({
    quick: [
      [8192, 8191],
      [8193, 8192],
      [9000, 2047],
    ],
    thorough: [
      [1024, 1023],
      [8192, 8191],
      [8193, 8192],
      [9000, 1],
      [9000, 2047],
      [9216, 9215],
    ],
  });
  for (const [length, position] of places) {
    const values = Array.from({ length }, (_, index) => index % 4);
    values[position] = -7;
    if (position + 1 < length) values[length - 1] = 9;
    const step = device.compile((index: Tensor) => table(4).indexSelect(0, index));
    step(indices(values));
    const { calls, first } = step.badIndices;
    assert.deepEqual([calls, first?.index], [1, -7], `index ${position} of ${length}`);
    step.close();
  }
});

test("indices of u8 and with a stride of two are checked too", () => {
  const step = device.compile((index: Tensor) =>
    table(4).indexSelect(0, index.narrow(0, 0, 4).reshape([2, 2]).select(1, 1)),
  );
  assert.deepEqual(step(indices([9, 1, 9, 2])).tolist(), [[2], [3]]);
  assert.equal(step.badIndices.calls, 0);
  step(indices([0, 1, 0, 5]));
  assert.equal(step.badIndices.first?.index, 5);
  step.close();
  const small = device.compile((index: Tensor) => table(4).indexSelect(0, index));
  small(tensor([3, 200], { device, dtype: "u8" }));
  assert.equal(small.badIndices.first?.index, 200);
  small.close();
});

for (const clip of [true, false]) {
  test(`a training step with a bad index changes no weight and no moment, ${clip ? "with" : "without"} clipping`, () => {
    const words = new nn.Embedding(4, 3).to(device);
    const head = new nn.Linear(3, 2).to(device);
    const parameters = [...words.parameters(), ...head.parameters()];
    const optimizer = new optim.AdamW(parameters, { lr: 0.1 });
    const step = device.compile((tokens: Tensor, labels: Tensor) => {
      const loss = nn.functional.crossEntropy(head.forward(words.forward(tokens)), labels);
      loss.backward();
      if (clip) optim.clipGradNorm(parameters, 1);
      optimizer.step();
      optimizer.zeroGrad();
      return { loss };
    });
    const state = (): Uint8Array[] =>
      [...parameters, ...Object.values(optimizer.stateDict())].flatMap(({ array }) =>
        array.storage ? [device.runtime.read(array.storage)] : [],
      );
    const good = [indices([0, 3]), indices([1, 0])] as const;
    step(...good);
    const before = state();
    assert.ok(Number.isNaN(step(indices([4, 1]), good[1]).loss.item()));
    assert.ok(Number.isNaN(step(good[0], indices([1, 2])).loss.item()));
    for (const [index, actual] of state().entries()) sameBytes(actual, before[index]!, `state ${index}`);
    const { calls, first } = step.badIndices;
    assert.deepEqual([step.skipped, calls, first?.op, first?.index, first?.call], [2, 2, "embedding", 4, 2]);
    assert.ok(Number.isFinite(step(...good).loss.item()));
    assert.equal(step.skipped, 2);
    assert.ok(state().some((actual, index) => actual.some((byte, at) => byte !== before[index]![at])));
    step.close();
  });
}

test("gradients that a step with a bad index would add are not added", () => {
  const words = new nn.Embedding(4, 3).to(device);
  const step = device.compile((tokens: Tensor) => {
    words.forward(tokens).square().sum().backward();
  });
  step(indices([0, 1]));
  const before = words.weight.grad?.tolist();
  step(indices([0, 7]));
  assert.deepEqual(words.weight.grad?.tolist(), before);
  step(indices([2]));
  assert.notDeepEqual(words.weight.grad?.tolist(), before);
  step.close();
});

test("the report names the step's call in every plan", () => {
  const step = device.compile((index: Tensor) => table(4).indexSelect(0, index));
  for (const values of [[0], [0, 1], [1], [2, 3], [0], [9]]) step(indices(values));
  assert.equal(step.plans, 2);
  assert.equal(step.badIndices.first?.call, 6);
  step.close();
});

test("reports of many checks name the right check", () => {
  const step = device.compile((...index: Tensor[]) =>
    index
      .map((value, number) =>
        table(4 + number)
          .indexSelect(0, value)
          .sum(),
      )
      .reduce((sum, value) => sum.add(value)),
  );
  const rows = Array.from({ length: 20 }, (_, number) => indices([3 + number]));
  assert.ok(step(...rows).item() > 0);
  assert.equal(step.badIndices.calls, 0);
  step(...rows.with(17, indices([21])));
  assert.deepEqual([step.badIndices.first?.size, step.badIndices.first?.index], [21, 21]);
  step.close();
});
