/** Embedding: maximum norms of rows in training, eager and compiled. Values of PyTorch: test/oracle-layers.test.ts. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { noGrad } from "../../autograd/index.js";
import { checkpoint, type Device, manualSeed, type Tensor } from "../../tensor/index.js";
import { Embedding, EmbeddingBag, Linear } from "./index.js";

const device = openStrictDevice();
const indices = (values: readonly number[], shape: readonly number[] = [values.length]): Tensor =>
  device.fromHost(values, shape, "i32");

const norms = (weight: Tensor, p = 2): number[] => [...weight.detach().norm(1, { p }).dataSync()];

test("rows that are looked up have the maximum norm at most, and the others keep theirs", () => {
  const words = new Embedding(6, 300, { maxNorm: 3, normType: 3 }).to(device);
  const before = norms(words.weight, 3);
  const y = device.step(() => words.forward(indices([4, 0, 4, 2], [2, 2])).dataSync());
  const after = norms(words.weight, 3);
  for (const [row, norm] of after.entries()) {
    assert.ok(before[row]! > 5, "rows are longer at first");
    if ([0, 2, 4].includes(row)) assert.ok(Math.abs(norm - 3) < 1e-5, `row ${row}: ${norm}`);
    else assert.equal(norm, before[row]);
  }
  assert.deepEqual(y.slice(300, 600), words.weight.detach().select(0, 0).dataSync());
  assert.match(String(words), /Embedding\(6, 300, maxNorm=3, normType=3\)/);
});

/** Steps of gradient descent by hand, on a table that is also the weight of the head. */
function train(on: Device, isCompiled: boolean): Float32Array[] {
  manualSeed(5);
  const words = new Embedding(50, 8, { maxNorm: 1, paddingIdx: -1 }).to(on);
  const head = new Linear(8, 50, { bias: false }).to(on);
  const body = (index: Tensor): Tensor => {
    const rows = checkpoint((x: Tensor) => words.forward(x).tanh(), index);
    const loss = head.forward(rows).square().mean();
    loss.backward();
    for (const { weight } of [words, head]) {
      noGrad(() => weight.sub_(weight.grad!.mul(20)));
      weight.zeroGrad();
    }
    return loss;
  };
  const compiled = on.compile(body);
  const losses = [3, 11, 3].map((first) => {
    const index = on.keep(on.fromHost([first, 1, first, 49, 20, 7], [3, 2], "i32"));
    return on.step(() => (isCompiled ? compiled(index) : body(index)).dataSync() as Float32Array);
  });
  compiled.close();
  return [...losses, words.weight.detach().dataSync() as Float32Array];
}

test("compiled and eager training have the same bits, also inside checkpoint", () => {
  const [eager, compiled] = [train(device, false), train(device, true)];
  for (const [index, values] of eager.entries()) sameBytes(compiled[index]!, values, `result ${index}`);
});

test("a bad index, a bad maximum and a bad padding index are errors, and change no row", () => {
  const words = new Embedding(3, 2, { maxNorm: 0.1 }).to(device);
  const before = words.weight.detach().dataSync();
  device.step(() => rejects("BAD_INDEX", () => words.forward(indices([0, 3])), /index 3 .*3 rows/));
  assert.deepEqual(words.weight.detach().dataSync(), before);
  rejects("BAD_ARGUMENT", () => new Embedding(3, 2, { maxNorm: -1 }), /maxNorm is -1 and normType 2/);
  rejects("BAD_ARGUMENT", () => new Embedding(3, 2, { maxNorm: 1, normType: 0 }), /normType 0/);
  rejects("BAD_ARGUMENT", () => new Embedding(3, 2, { paddingIdx: -4 }), /from -3 to 2/);
});

test("a bag limits the norms of its rows, too", () => {
  const bags = new EmbeddingBag(6, 300, { maxNorm: 3, mode: "sum" }).to(device);
  device.step(() => bags.forward(indices([4, 0], [1, 2])).dataSync());
  const after = norms(bags.weight);
  for (const [row, norm] of after.entries())
    assert.ok([0, 4].includes(row) ? Math.abs(norm - 3) < 1e-5 : norm > 5, `row ${row}: ${norm}`);
  assert.match(String(bags), /EmbeddingBag\(6, 300, mode=sum, maxNorm=3\)/);
  rejects("BAD_ARGUMENT", () => new EmbeddingBag(2, 2, { maxNorm: -1 }), /EmbeddingBag: maxNorm is -1/);
});

test("a layer of pretrained rows is frozen unless it is to be trained", () => {
  const rows = device.fromHost([1, 2, 3, 4], [2, 2], "f64");
  const [frozen, trained] = [true, false].map((freeze) =>
    Embedding.fromPretrained(rows, { freeze, paddingIdx: 0 }),
  );
  assert.deepEqual(
    [frozen?.weight.requiresGrad, trained?.weight.requiresGrad, trained?.paddingIdx],
    [false, true, 0],
  );
  assert.equal(Embedding.fromPretrained(rows).weight.requiresGrad, false);
  assert.deepEqual(trained?.forward(indices([1, 0])).tolist(), [
    [3, 4],
    [1, 2],
  ]);
  rejects("BAD_SHAPE", () => Embedding.fromPretrained(rows.flatten()), /the rows are \[4\]/);
});
