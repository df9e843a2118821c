/**
 * C14: gradients were scaled by the loss for ten months. Every op was right, and no test covered the whole
 * step.
 */

import assert from "node:assert/strict";
import { type Device, nn, noGrad, optim, type Tensor } from "holdfast";
import { openStrictDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

const [batch, features, width, classes] = [5, 4, 6, 3] as const;
const lr = 0.125;

/** One of every kind of layer, small enough to test each weight. */
function makeModel(device: Device): nn.Sequential {
  return new nn.Sequential(
    new nn.Linear(features, width),
    new nn.LayerNorm(width),
    new nn.GELU(),
    new nn.Linear(width, classes),
  ).to(device, "f64");
}

/** How a training step gets from the loss to the weights. */
interface Trainer {
  readonly train: (loss: Tensor, model: nn.Module, optimizer: optim.SGD) => void;
}

const sound: Trainer = {
  train(loss, _, optimizer) {
    loss.backward();
    optimizer.step();
  },
};

const device = openStrictDevice();
const model = makeModel(device);

const wave = (size: number, pace: number) =>
  Float64Array.from({ length: size }, (_, i) => Math.sin(i * pace + 1));

function lossOf(): Tensor {
  const x = device.fromHost(wave(batch * features, 1.7), [batch, features], "f64"); // [B, F]
  const y = device.fromHost([0, 2, 1, 1, 0], [batch], "i32"); // [B]
  return nn.functional.crossEntropy(model.forward(x), y);
}

const lossNow = (): number => device.step(() => noGrad(() => lossOf().item()));

interface Slopes {
  readonly parameter: nn.Parameter;
  /** The first weights, from which every trainer starts. */
  readonly values: Float64Array;
  readonly slope: Float64Array;
}

function differentiate(parameter: nn.Parameter): Slopes {
  const values = Float64Array.from(parameter.dataSync());
  const lossWith = (index: number, change: number): number => {
    device.write(
      parameter,
      values.map((value, at) => (at === index ? value + change : value)),
    );
    return lossNow();
  };
  const slope = values.map((_, index) => (lossWith(index, 1e-5) - lossWith(index, -1e-5)) / 2e-5);
  device.write(parameter, values);
  return { parameter, values, slope };
}

let differentiated: readonly Slopes[] | undefined;

/** The slopes of the loss, by central differences. */
function slopes(): readonly Slopes[] {
  differentiated ??= model.parameters().map(differentiate);
  return differentiated;
}

regressionRow<Trainer>({
  row: "C14",
  rule: "a whole training step changes a weight by the rate times the slope of the loss, by central differences",
  sound,
  faults: {
    "gradients are scaled by the loss": {
      train(loss, _, optimizer) {
        loss.backward(loss.detach());
        optimizer.step();
      },
    },
    "gradients of the previous step are still there": {
      train(loss, model, optimizer) {
        loss.backward(undefined, { retainGraph: true });
        sound.train(loss, model, optimizer);
      },
    },
    "the mean is taken twice": {
      train: (loss, model, optimizer) => sound.train(loss.div(batch), model, optimizer),
    },
  },
  check: ({ train }) => {
    for (const { parameter, values } of slopes()) device.write(parameter, values);
    const optimizer = new optim.SGD(model.parameters(), { lr });
    optimizer.zeroGrad();
    device.step(() => {
      train(lossOf(), model, optimizer);
    });
    for (const { parameter, values, slope } of slopes()) {
      for (const [index, value] of parameter.dataSync().entries()) {
        const change = ((values[index] ?? 0) - value) / lr;
        const error = Math.abs(change - (slope[index] ?? Number.NaN));
        assert.ok(
          error < 1e-8,
          `${parameter.name}[${index}] changed by ${change} times the rate, the slope is ${slope[index]}`,
        );
      }
    }
  },
});
