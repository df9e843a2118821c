/** nn.functional: names, orders of arguments, options and defaults are PyTorch's. The ops have separate tests. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice } from "../../test/support/devices.js";
import { readRepositoryFile } from "../../test/support/repository.js";
import type { Tensor } from "../tensor/index.js";
import * as F from "./functional.js";

const cpu = openDevice({ threads: 1 });
const f64 = (values: readonly number[], shape: readonly number[] = [values.length]): Tensor =>
  cpu.fromHost(values, shape, "f64");

/** Compares with the values of PyTorch 2 for these calls in float64. */
function near(actual: Tensor, expected: readonly number[], name: string): void {
  const values = actual.dataSync();
  assert.equal(values.length, expected.length, name);
  for (const [index, value] of expected.entries()) {
    assert.ok(Math.abs(values[index]! - value) <= 1e-12, `${name}, at ${index}: ${values[index]}`);
  }
}

test("every function has PyTorch's name, in camelCase, except Holdfast's own and newer ones", () => {
  const { namespaces } = JSON.parse(readRepositoryFile("test/oracle/torch-names.json")) as {
    namespaces: Record<string, Record<string, readonly string[]>>;
  };
  const own = [
    ...["batchedLinear", "fusedProjections", "loraLinear", "packedAttention"],
    ...["bceWithLogits", "sigmoidFocalLoss"],
  ];
  const newer = ["rmsNorm", "scaledDotProductAttention"];
  const torch = Object.values(namespaces["torch.nn.functional"] ?? {}).flat();
  const camel = torch.map((name) => name.replace(/(?<=.)_(.)/g, (_, letter: string) => letter.toUpperCase()));
  const known = new Set([...camel, ...torch, ...own, ...newer]);
  assert.deepEqual(
    Object.keys(F).filter((name) => !known.has(name)),
    [],
  );
  assert.ok(known.size > 150);
});

test("activations have PyTorch's defaults", () => {
  cpu.step(() => {
    const x = f64([-2, 0, 3]);
    near(F.leakyRelu(x), [-0.02, 0, 3], "leakyRelu");
    near(F.gelu(f64([1])), [0.8413447460685429], "gelu");
    near(F.gelu(f64([1]), "tanh"), [0.8411919906082768], "gelu by tanh");
    near(F.silu(f64([1])), [1 / (1 + Math.exp(-1))], "silu");
    near(F.softplus(f64([0])), [Math.LN2], "softplus");
    near(
      F.relu(x)
        .add(F.sigmoid(f64([0, 0, 0])))
        .add(F.tanh(f64([0, 0, 0]))),
      [0.5, 0.5, 3.5],
      "others",
    );
    near(F.logSoftmax(f64([0, 0]), 0), [-Math.LN2, -Math.LN2], "logSoftmax");
  });
});

test("layerNorm takes an optional weight and an optional bias, and has a default eps of 1e-5", () => {
  cpu.step(() => {
    const x = f64([1, 3], [1, 2]);
    const size = 1 / Math.sqrt(1 + 1e-5);
    const [weight, bias] = [f64([2, 3]), f64([10, 20])];
    near(F.layerNorm(x, [2]), [-size, size], "plain");
    near(F.layerNorm(x, [2], weight), [-2 * size, 3 * size], "with a weight");
    near(F.layerNorm(x, [2], null, bias), [10 - size, 20 + size], "with a bias");
    near(F.layerNorm(x, [2], weight, bias), [10 - 2 * size, 20 + 3 * size], "with both");
  });
});

test("rmsNorm's default eps is the dtype's epsilon, and normalize's default axis is 1", () => {
  cpu.step(() => {
    const x = f64([3, 4, 0, 0], [2, 2]);
    near(F.normalize(x), [0.6, 0.8, 0, 0], "normalize");
    near(F.normalize(x, 0), [1, 1, 0, 0], "normalize along axis 0");
    const size = Math.sqrt(12.5 + 2 ** -52);
    near(F.rmsNorm(x, [2], f64([1, 2])), [3 / size, 8 / size, 0, 0], "rmsNorm");
    near(F.rmsNorm(f64([2, 2]), [2], null, 12), [0.5, 0.5], "rmsNorm with an eps");
  });
});

test("dropout returns its input in evaluation, and its default p is 0.5", () => {
  cpu.step(() => {
    const x = cpu.fromHost(new Float32Array(1000).fill(1), [1000], "f32");
    assert.equal(F.dropout(x, 0.5, false), x);
    assert.equal(F.dropout(x, 0), x);
    assert.deepEqual([...new Set(F.dropout(x).dataSync())].sort(), [0, 2]);
  });
});

test("embedding takes the indices first, and pad counts from the last axis", () => {
  cpu.step(() => {
    const table = f64([1, 2, 3, 4], [2, 2]);
    table.requiresGrad = true;
    const rows = F.embedding(cpu.fromHost([1, 0, 1], [3], "i32"), table, { paddingIdx: 0 });
    assert.deepEqual(rows.tolist(), [
      [3, 4],
      [1, 2],
      [3, 4],
    ]);
    rows.sum().backward();
    assert.deepEqual(table.grad?.tolist(), [
      [0, 0],
      [2, 2],
    ]);
    assert.deepEqual(F.pad(f64([1]), [1, 2], 7).tolist(), [7, 1, 7, 7]);
    assert.deepEqual(F.linear(f64([1, 2]), table).tolist(), [5, 11]);
  });
});

test("losses pass on their options, and a weight of null means no weight", () => {
  cpu.step(() => {
    const logits = f64([0, 0, 0, 0], [2, 2]);
    const target = cpu.fromHost([0, 1], [2], "i32");
    near(
      F.crossEntropy(logits, target, { weight: null, ignoreIndex: 1, reduction: "sum" }),
      [Math.LN2],
      "ignored",
    );
    near(F.crossEntropy(logits, f64([0.5, 0.5, 0, 1], [2, 2])), [Math.LN2], "shares");
    near(F.nllLoss(logits.sub(1), target, { reduction: "sum" }), [2], "nllLoss");
    near(F.huberLoss(f64([3]), f64([0]), { delta: 2 }), [4], "huberLoss");
    near(F.smoothL1Loss(f64([3]), f64([0]), { beta: 2 }), [2], "smoothL1Loss");
    near(F.l1Loss(f64([3, 1]), f64([0, 0]), { reduction: "sum" }), [4], "l1Loss");
    near(F.mseLoss(f64([3, 1]), f64([0, 0])), [5], "mseLoss");
    const weighted = { weight: f64([2]), posWeight: f64([3]) };
    near(F.binaryCrossEntropyWithLogits(f64([0]), f64([1]), weighted), [6 * Math.LN2], "bce");
    assert.equal(F.bceWithLogits, F.binaryCrossEntropyWithLogits);
  });
});
