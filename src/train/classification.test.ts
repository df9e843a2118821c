/** Figures of classifiers, computed by hand, and predictions of every row in order. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { noGrad } from "../autograd/index.js";
import * as nn from "../nn/index.js";
import { manualSeed } from "../tensor/index.js";
import { ClassificationFigures } from "./classification.js";
import { Predictor } from "./predict.js";

test("loss, accuracy, confusion and the most frequent class equal those computed by hand", () => {
  const figures = new ClassificationFigures(3);
  figures.add([2, 1, 0, 0, 5, 0, 1, 0, 1000], [0, 0, 2]);
  figures.add([0, 0, 0], [-1]);
  assert.deepEqual(figures.confusion, [
    [1, 1, 0],
    [0, 0, 0],
    [0, 0, 1],
  ]);
  assert.deepEqual([figures.count, figures.accuracy, figures.majority], [3, 2 / 3, 2 / 3]);
  const lossOf = (logits: number[], label: number): number =>
    Math.log(logits.reduce((sum, one) => sum + Math.exp(one - Math.max(...logits)), 0)) +
    Math.max(...logits) -
    logits[label]!;
  const expected = (lossOf([2, 1, 0], 0) + lossOf([0, 5, 0], 0) + lossOf([1, 0, 1000], 2)) / 3;
  assert.ok(Math.abs(figures.loss - expected) < 1e-12);
});

test("joined figures of batches equal the figures of all rows", () => {
  const [whole, first, second] = [1, 2, 3].map(() => new ClassificationFigures(2));
  whole!.add([1, 0, 0, 1, 3, 2], [0, 0, 1]);
  first!.add([1, 0], [0]);
  second!.add([0, 1, 3, 2], [0, 1]);
  first!.join(second!);
  assert.deepEqual([first!.confusion, first!.loss], [whole!.confusion, whole!.loss]);
});

test("a label outside the classes, and a wrong number of logits, are rejected", () => {
  const figures = new ClassificationFigures(3);
  assert.throws(() => figures.add([0, 0, 0], [3]), {
    code: "BAD_INDEX",
    message: /^Label 3 is out of range/,
  });
  assert.throws(() => figures.add([0, 0], [0]), { code: "BAD_SHAPE" });
});

test("a predictor gives the model's outputs without dropout, and again after the weights have changed", () => {
  const device = openStrictDevice();

  manualSeed(2);
  const linear = new nn.Linear(2, 3);
  const model = new nn.Sequential(linear, new nn.Dropout(0.5)).to(device);
  const inputs = Array.from({ length: 7 }, (_, row) => [row, row * row]);
  const predictor = new Predictor({ device, model, inputs, batchSize: 3, forward: (x) => model.forward(x) });
  const collect = (): number[] => {
    const all: number[] = [];
    predictor.run((outputs, first) => {
      assert.equal(all.length, 3 * first);
      all.push(...outputs);
    });
    return all;
  };
  const expected = (): number[] => {
    const [weight, bias] = [[...linear.weight.dataSync()], [...linear.bias!.dataSync()]];
    return inputs.flatMap(([a = 0, b = 0]) =>
      [0, 1, 2].map((out) => weight[2 * out]! * a + weight[2 * out + 1]! * b + bias[out]!),
    );
  };
  const check = (): void => {
    const [found, wanted] = [collect(), expected()];
    assert.equal(found.length, wanted.length);
    for (const [index, value] of found.entries())
      assert.ok(Math.abs(value - wanted[index]!) < 1e-4, `${index}`);
  };
  check();
  assert.equal(model.isTraining, true);
  noGrad(() => device.step(() => linear.weight.mul_(2)));
  check();
  predictor.close();
});
