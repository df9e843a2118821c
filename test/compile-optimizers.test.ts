/** Every optimizer in compiled steps: its parameters and its state have the bits of eager steps. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, optim, type Tensor, tensor } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { placeParameters } from "./support/parameter-module.js";
import { sameBytes } from "./support/same-bytes.js";

const device = openStrictDevice();

const shapes = [[3, 5], [4], [2, 33]];
const values = shapes.map((shape, index) =>
  Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, element) =>
    Math.sin(index * 31 + element * 1.3),
  ),
);

type Make = (parameters: readonly Tensor[]) => optim.Optimizer;

const makers: Readonly<Record<string, Make>> = {
  "SGD with momentum": (parameters) => new optim.SGD(parameters, { lr: 0.1, momentum: 0.9 }),
  "AdamW with amsgrad": (parameters) => new optim.AdamW(parameters, { lr: 0.1, amsgrad: true }),
  RMSprop: (parameters) => new optim.RMSprop(parameters, { lr: 0.1, centered: true, momentum: 0.5 }),
  Adagrad: (parameters) =>
    new optim.Adagrad(parameters, { lr: 0.1, initialAccumulatorValue: 0.5, lrDecay: 0.1 }),
  Adadelta: (parameters) => new optim.Adadelta(parameters, { weightDecay: 0.1 }),
  Adamax: (parameters) => new optim.Adamax(parameters, { weightDecay: 0.1 }),
  NAdam: (parameters) => new optim.NAdam(parameters, { weightDecay: 0.1, decoupledWeightDecay: true }),
  RAdam: (parameters) => new optim.RAdam(parameters, { betas: [0.5, 0.6], decoupledWeightDecay: true }),
  Lion: (parameters) => new optim.Lion(parameters, { lr: 0.1, weightDecay: 0.1 }),
  Rprop: (parameters) => new optim.Rprop(parameters, { lr: 0.1 }),
  ASGD: (parameters) => new optim.ASGD(parameters, { lr: 0.1, t0: 2, lambd: 0.1 }),
};

/** Five steps; the parameters and the state after them. */
function train(on: Device, dtype: "f32" | "bf16", make: Make, isCompiled: boolean): Uint8Array[] {
  const parameters = placeParameters(on, dtype, shapes, values);
  const optimizer = make(parameters);
  const body = (scale: Tensor): void => {
    optimizer.zeroGrad();
    for (const parameter of parameters) {
      const scaled = parameter.to("f32").mul(scale);
      scaled.square().sum().backward();
    }
    optimizer.step();
  };
  const step = isCompiled
    ? on.compile(body, { passes: { autotune: false } })
    : (scale: Tensor) => on.step(() => body(scale));
  for (const scale of [1, -0.5, 0.25, 2, 1]) {
    if (scale === 2) optimizer.lr /= 2;
    step(tensor(scale, { device: on }));
  }
  const state = [...parameters, ...Object.values(optimizer.stateDict())];
  const bytes = state.map((one) => new Uint8Array(one.dataSync().buffer.slice(0)));
  return bytes;
}

for (const [name, make] of Object.entries(makers)) {
  for (const dtype of ["f32", "bf16"] as const) {
    test(`${name} in ${dtype}: compiled steps have the bits of eager ones`, () => {
      const [eager, compiled] = [false, true].map((isCompiled) => train(device, dtype, make, isCompiled));
      assert.equal(eager!.length, compiled!.length);
      for (const [index, bytes] of eager!.entries())
        sameBytes(compiled![index]!, bytes, `number ${index} of the parameters and the state`);
    });
  }
}
