/** Which of the features Holdfast has. */

import "../../source-modules.js";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as holdfast from "holdfast";
import { exportNamed, isNear, printAnswers } from "./probes.js";

const { autograd, Device, nn, ones, optim, loadWeights, saveWeights, Tensor, tensor } = holdfast;
type Value = InstanceType<typeof Tensor>;
const cpu = new Device("cpu", { stallAfter: "off", print: () => {} });
const cube = (x: Value): Value => x.mul(x).mul(x);
/** A tensor that a device created is a leaf. */
const leaf = (x: Value): Value => x.requiresGrad_();
const gradientOf = (loss: Value, x: Value): number => {
  loss.backward();
  return Number(x.grad?.flatten().dataSync().at(0));
};
const folder = mkdtempSync(join(tmpdir(), "features-"));

class Seven extends autograd.Function {
  static forward(_: holdfast.autograd.FunctionContext, x: Value): Value {
    return x.sign();
  }
  static backward(_: holdfast.autograd.FunctionContext, gradient: Value): Value {
    return gradient.mul(7);
  }
}

/** Trains two steps with dropout from a checkpoint, twice. */
function resumed(): true | string {
  const layer = new nn.Linear(4, 4).to(cpu);
  const optimizer = new optim.Adam(layer.parameters());
  const train = (): string => {
    for (let step = 0; step < 2; step++) {
      cpu.step(() => {
        nn.functional
          .dropout(layer.forward(ones([2, 4], { device: cpu })), 0.5)
          .sum()
          .backward();
        optimizer.step();
        optimizer.zeroGrad();
      });
    }
    return String(layer.weight.dataSync());
  };
  train();
  const parts = { model: layer, optimizer };
  const kept = holdfast.captureCheckpoint(parts);
  const once = train();
  holdfast.restoreCheckpoint(kept, parts);
  return once === train() || "the resumed steps differ";
}

await printAnswers({
  "embedding with gradient": () => {
    const table = leaf(ones([2, 3], { device: cpu }));
    return isNear(
      gradientOf(nn.functional.embedding(tensor([0], { dtype: "i32", device: cpu }), table).sum(), table),
      1,
    );
  },
  "convolution with gradient": () => {
    const kernel = leaf(ones([1, 1, 2, 2], { device: cpu }));
    return isNear(
      gradientOf(nn.functional.conv2d(ones([1, 1, 3, 3], { device: cpu }), kernel).sum(), kernel),
      4,
    );
  },
  "LSTM layer": () => {
    const [y] = new nn.LSTM(5, 3).to(cpu).forward(ones([4, 2, 5], { device: cpu }));
    return String(y.shape) === "4,2,3" || `gives shape ${y.shape}`;
  },
  "batch norm with running statistics": () => {
    const norm = new nn.BatchNorm1d(1, { momentum: 0.5 }).to(cpu);
    norm.forward(ones([4, 1], { device: cpu }));
    return isNear(Number(norm.runningMean?.dataSync()[0]), 0.5);
  },
  dropout: () =>
    nn.functional
      .dropout(ones([100], { device: cpu }), 0.5)
      .amin()
      .item() === 0 || "drops nothing",
  "gradient of a gradient": () => {
    const x = leaf(tensor([2], { device: cpu }));
    const [slope] = autograd.grad(cube(x).sum(), [x], { createGraph: true });
    return isNear(gradientOf(slope!.sum(), x), 12);
  },
  "gradient of one's own": () => {
    const x = leaf(ones([1], { device: cpu }));
    return isNear(gradientOf(Seven.apply(x).sum(), x), 7);
  },
  "compiled step": () =>
    isNear(
      cpu
        .compile(cube)(tensor([2], { device: cpu }))
        .item(),
      8,
    ),
  AdamW: () => exportNamed(holdfast, /^AdamW$/),
  "clipping of the gradients' norm": () => {
    const x = leaf(ones([1], { device: cpu }));
    x.mul(8).sum().backward();
    optim.clipGradNorm([x as never], 1);
    return isNear(Number(x.grad?.item()), 1);
  },
  "checkpoint of weights, optimizer and random state": resumed,
  "safetensors files": () => {
    const path = join(folder, "layer.safetensors");
    const [written, read] = [1, 2].map(() => new nn.Linear(2, 1).to(cpu));
    saveWeights(path, written!);
    loadWeights(path, read!);
    return String(written!.weight.dataSync()) === String(read!.weight.dataSync()) || "the weights differ";
  },
  f16: () => tensor([1.5], { dtype: "f16", device: cpu }).add(1).dtype === "f16" || "not f16",
  bf16: () => tensor([1.5], { dtype: "bf16", device: cpu }).add(1).dtype === "bf16" || "not bf16",
  f64: () => tensor([1.5], { dtype: "f64", device: cpu }).add(1).dtype === "f64" || "not f64",
  vmap: () => exportNamed(holdfast, /^vmap$/),
  "backend for browsers' GPUs": () => "Node.js only: the CPU, and NVIDIA GPUs by CUDA",
});
rmSync(folder, { recursive: true });
cpu.close();
