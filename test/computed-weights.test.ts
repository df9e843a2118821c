/** weightNorm and spectralNorm: training, compiled and eager, and the life of the parameters. Values of PyTorch: test/oracle-layers.test.ts. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkpoint, type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

const device = openStrictDevice();
const { removeSpectralNorm, removeWeightNorm, spectralNorm, weightNorm } = nn.utils;
const normalize = { weightNorm, spectralNorm };
const remove = { weightNorm: removeWeightNorm, spectralNorm: removeSpectralNorm };

/** Two passes through the layer per step, as of a discriminator, one of them in a checkpoint. */
function train(on: Device, name: keyof typeof normalize, isCompiled: boolean): Float32Array[] {
  manualSeed(4);
  const model = new nn.Sequential(
    normalize[name](new nn.Linear(3, 4)),
    normalize[name](new nn.Linear(4, 2)),
  ).to(on);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.05, momentum: 0.9 });
  const body = (x: Tensor, y: Tensor): Tensor => {
    const again = checkpoint((input: Tensor) => model.forward(input).tanh(), y);
    const loss = model.forward(x).square().mean().sub(again.mean());
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };
  const step = isCompiled ? on.compile(body) : body;
  const [x, y] = [randn([5, 3], { device: on }), randn([5, 3], { device: on })];
  const losses = [1, 2, 3].map(() => on.step(() => Float32Array.from(step(x, y).dataSync())));
  return [...losses, ...Object.values(model.stateDict()).map((tensor) => tensor.dataSync() as Float32Array)];
}

for (const name of ["weightNorm", "spectralNorm"] as const) {
  describe(name, () => {
    test("compiled and eager training have the same bits", () => {
      const [eager, compiled] = [false, true].map((isCompiled) => train(device, name, isCompiled));
      assert.notDeepEqual(eager![0], eager![2], "the model is trained");
      for (const [index, values] of eager!.entries()) sameBytes(values, compiled![index]!, `tensor ${index}`);
    });

    test("a module may be on its device already, and keeps its weight when the normalization is removed", () => {
      const layer = new nn.Linear(3, 4).to(device, "f64");
      const { weight } = layer;
      normalize[name](layer);
      const parts = Object.keys(layer.stateDict());
      assert.ok(parts.length > 2 && !parts.includes("weight"), parts.join());
      layer.eval();
      const computed = layer.weight.tolist();
      remove[name](layer);
      assert.equal(layer.weight, weight);
      assert.deepEqual(layer.weight.tolist(), computed);
      assert.deepEqual(Object.keys(layer.stateDict()), ["bias", "weight"]);
      rejects("BAD_ARGUMENT", () => remove[name](layer), new RegExp(`Linear.weight has no ${name}`));
    });

    test("a saved state gives another model the same weight", () => {
      const [one, other] = [1, 2].map(() => normalize[name](new nn.Linear(3, 4)).to(device).eval());
      other!.loadStateDict(one!.stateDict());
      assert.deepEqual(other!.weight.tolist(), one!.weight.tolist());
    });

    test("a weight is normalized once, and has to be a parameter", () => {
      const layer = normalize[name](new nn.Linear(3, 4));
      rejects("BAD_ARGUMENT", () => normalize[name](layer), /Linear.weight is computed by/);
      rejects(
        "BAD_ARGUMENT",
        () => normalize[name](layer, { name: "wieght" }),
        /not a field that holds a parameter. Such fields: .*bias/,
      );
    });
  });
}

test("weightNorm does not change the function at first", () => {
  const layer = new nn.Conv2d(3, 4, 2).to(device, "f64");
  const x = randn([2, 3, 3, 3], { dtype: "f64", device });
  const before = layer.forward(x);
  for (const axis of [0, 3, null]) {
    assert.ok(weightNorm(layer, { axis }).forward(x).allclose(before, { rtol: 0, atol: 1e-12 }));
    removeWeightNorm(layer);
  }
  rejects("BAD_ARGUMENT", () => weightNorm(new nn.LSTM(2, 2), { name: "weightHhL0" }), /Such fields: none/);
});
