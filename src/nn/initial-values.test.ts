/** First values on a device: the bits of the host for every initializer and dtype, drawn there and not uploaded. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import type { Dtype } from "../ir/index.js";
import { drawValues, standardNormal, standardUniform } from "../kernels/index.js";
import { encodeElements, manualSeed, rand, randn, type Tensor, tensor } from "../tensor/index.js";
import * as nn from "./index.js";

const device = openDevice();
const { init } = nn;

class Holder extends nn.Module {
  readonly parameters_: readonly nn.Parameter[];

  constructor(...parameters: readonly nn.Parameter[]) {
    super();
    this.parameters_ = parameters;
  }

  forward(x: Tensor): Tensor {
    return x;
  }
}

const uploadedBytes = (): number => device.runtime.diagnostics().transfers.up.bytes;

const initializers: Readonly<Record<string, nn.Initializer>> = {
  uniform: init.uniform(-1, 2),
  normal: init.normal(0.1, 0.02),
  truncNormal: init.truncNormal(0, 0.02, -0.03, 0.04),
  kaimingUniform: init.kaimingUniform(),
  kaimingNormal: init.kaimingNormal(),
  xavierUniform: init.xavierUniform(),
  xavierNormal: init.xavierNormal({ gain: 2 }),
  orthogonal: init.orthogonal({ gain: 0.5 }),
};

function assertHostBits(parameter: nn.Parameter, dtype: Dtype, what: string): void {
  const expected = encodeElements(parameter.initialValues(), dtype);
  const { storage } = parameter.array;
  assert.ok(storage);
  sameBytes(device.runtime.read(storage), new Uint8Array(expected.buffer), what);
}

test("every initializer has the bits of the host on the device, without an upload", () => {
  for (const [name, initializer] of Object.entries(initializers)) {
    for (const shape of [
      [3, 5],
      [17, 8, 3],
      [40, 33],
    ] as const) {
      const parameter = new nn.Parameter(shape, initializer);
      const before = uploadedBytes();
      new Holder(parameter).to(device);
      assert.equal(uploadedBytes(), before, `${name} is not uploaded`);
      assertHostBits(parameter, "f32", `${name} of ${shape}`);
    }
  }
});

test("every float dtype has the host's values, rounded once from float32", () => {
  for (const dtype of ["f64", "bf16", "f16"] as const) {
    for (const name of ["normal", "orthogonal", "truncNormal"] as const) {
      const parameter = new nn.Parameter([9, 7], initializers[name]!, { dtype });
      new Holder(parameter).to(device);
      assertHostBits(parameter, dtype, `${name} in ${dtype}`);
    }
  }
  const moved = new nn.Parameter([9, 7], initializers["normal"]!);
  new Holder(moved).to(device, "bf16");
  assertHostBits(moved, "bf16", "bf16 by to()");
});

test("parameters of integers get their values from the host", () => {
  const whole = new nn.Parameter([50], init.uniform(-100, 100), { dtype: "i32", requiresGrad: false });
  new Holder(whole).to(device);
  assertHostBits(whole, "i32", "i32");
});

test("initialize() draws a placed parameter anew, with the same draw", () => {
  const parameter = new nn.Parameter([6, 5], init.zeros());
  new Holder(parameter).to(device);
  const before = uploadedBytes();
  parameter.initialize(initializers["normal"]!);
  assert.equal(uploadedBytes(), before);
  assertHostBits(parameter, "f32", "after initialize()");
});

test("a user's function still decides every value, also if it calls an initializer", () => {
  const parameter = new nn.Parameter([2, 2], (shape, draw) =>
    Float32Array.from(init.normal()(shape, draw), (value) => Math.sign(value)),
  );
  new Holder(parameter).to(device);
  assert.deepEqual([...new Set(Array.from(parameter.dataSync(), Math.abs))], [1]);
  parameter.initialize(() => [1, 2, 3, 4]);
  assert.deepEqual(parameter.tolist(), [
    [1, 2],
    [3, 4],
  ]);
});

test("values depend on the seed and the order of creation, not on the order of placement or on other draws", () => {
  const make = (): nn.Parameter[] =>
    [init.normal(), init.uniform(), init.normal()].map((initializer) => new nn.Parameter([4], initializer));
  manualSeed(11);
  const inOrder = make();
  new Holder(...inOrder).to(device);
  manualSeed(11);
  const reversed = make();
  randn([5], { device });
  for (const parameter of [...reversed].reverse()) new Holder(parameter).to(device);
  const [first, second] = [inOrder, reversed].map((list) => list.map((parameter) => parameter.tolist()));
  assert.deepEqual(second, first);
  assert.notDeepEqual(inOrder[0]!.tolist(), inOrder[2]!.tolist());
});

test("a parameter that two modules share is drawn once and keeps its values", () => {
  const [embedding, head] = [new nn.Embedding(7, 4), new nn.Linear(4, 7, { bias: false })];
  embedding.weight = head.weight;
  const model = new nn.Sequential(embedding, head).to(device);
  assert.equal([...model.parameters()].length, 1);
  assertHostBits(head.weight, "f32", "the shared weight");
  head.weight.initialize(init.ones());
  model.to(device);
  assert.deepEqual([...new Set(head.weight.dataSync())], [1]);
});

test("the row of a padding index is zero, and the others are those without padding", () => {
  manualSeed(3);
  const padded = new nn.Embedding(5, 3, { paddingIdx: 1 }).to(device);
  manualSeed(3);
  const plain = new nn.Embedding(5, 3).to(device);
  const expected = plain.weight.tolist() as number[][];
  expected[1] = [0, 0, 0];
  assert.deepEqual(padded.weight.tolist(), expected);
  assertHostBits(padded.weight, "f32", "with padding");
});

test("rand and randn draw on the device, from the stream that its counter names", () => {
  for (const [create, distribution] of [
    [rand, standardUniform],
    [randn, standardNormal],
  ] as const) {
    manualSeed(8);
    const before = uploadedBytes();
    const drawn = create([5, 3], { device });
    assert.equal(uploadedBytes(), before);
    const expected = drawValues(distribution, { seed: 8, id: 0, use: "draws" }, 15);
    sameBytes(drawn.dataSync(), expected, "drawn");
  }
  assert.deepEqual(rand([3], { device, dtype: "i32" }).tolist(), [0, 0, 0]);
});

test("a tensor without elements takes no draw", () => {
  manualSeed(9);
  randn([0, 4], { device });
  const after = randn([3], { device }).tolist();
  manualSeed(9);
  assert.deepEqual(randn([3], { device }).tolist(), after);
});

test("initialize() inside a compiled step is rejected: each replay would overwrite the parameter", () => {
  const layer = new nn.Linear(2, 2).to(device);
  const step = device.compile((x: Tensor) => {
    layer.weight.initialize(init.normal());
    return layer.forward(x).sum();
  });
  rejects("NOT_TRACEABLE", () => step(tensor([[1, 2]], { device })), /draw initial values/);
});

test("a module whose values can't be drawn stays unplaced, and leaves no memory allocated", () => {
  const before = device.runtime.budget.used;
  const flat = new nn.Parameter([3], init.orthogonal());
  rejects("BAD_SHAPE", () => new Holder(flat).to(device), /\[3\] is not a matrix/);
  assert.equal(device.runtime.budget.used, before);
  const small = openDevice({ memory: "48MiB" });
  const used = small.runtime.budget.used;
  const large = new nn.Parameter([2000, 2000], init.orthogonal());
  // The parameter and its gradient fit, but not the memory to compute it.
  assert.throws(() => new Holder(large).to(small));
  assert.equal(large.isPlaced, false);
  assert.equal(small.diagnostics().budget.usedByLabel.weights ?? 0, 0);
  assert.ok(small.runtime.budget.used >= used);
});
