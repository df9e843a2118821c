/**
 * Training steps of models that other benchmarks here don't have: a ResNet and a MobileNet with batch normalisation, a U-Net, an autoencoder
 * with transposed convolutions, an LSTM, an encoder with padding and dropout, an encoder and decoder. `everyday_models_peer.py` is the same in PyTorch.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/everyday-models.js [--models resnet,unet] [--precision bf16] [--seconds 4]
 *     [--kernels 16] [--scale 1] [--device cuda]
 *
 * Each prints one line. A step is forward, loss, backward, clipping and AdamW, on one random batch that lies on the device. `--scale`
 * divides batches and sequences, for a trial without a GPU.
 */

import "../source-modules.js";
import { Device, manualSeed, optim } from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { everydayModels, type Make } from "./everyday-workloads.js";

const options = readOptions(import.meta.url, {
  models: { type: "string", default: "all" },
  precision: { type: "string", default: "bf16" },
  seconds: { type: "string", default: "4" },
  kernels: { type: "string", default: "0" },
  scale: { type: "string", default: "1" },
  device: { type: "string", default: "cuda" },
});

function measure(name: string, make: Make): void {
  const device = new Device(options.device === "cpu" ? "cpu" : "cuda", {
    precision: options.precision === "tf32" ? "tf32" : options.precision === "f32" ? "f32" : "bf16",
    print: () => {},
  });
  const { runtime } = device;
  manualSeed(42);
  const { model, loss: lossOf } = make(device, (size) =>
    Math.max(2, Math.floor(size / Number(options.scale))),
  );
  model.to(device);
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 1e-3, weightDecay: 0.01 });
  const step = device.compile(() => {
    const loss = lossOf();
    loss.backward();
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  });
  let peak = 0;
  const observe = (): void => {
    peak = Math.max(peak, runtime.budget.used - runtime.budget.usedBy("staging"));
  };
  const started = performance.now();
  const firstLoss = step().loss.item();
  const firstSeconds = (performance.now() - started) / 1000;
  observe();
  const timed = (count: number): number => {
    const from = performance.now();
    for (let index = 0; index < count; index++) step();
    runtime.synchronize();
    return (performance.now() - from) / count;
  };
  let one = timed(1);
  const milliseconds = 1000 * Number(options.seconds);
  for (const end = performance.now() + milliseconds; performance.now() < end; ) {
    one = timed(1);
    if (performance.now() - started > 3 * milliseconds) break;
  }
  observe();
  const groups = 9;
  const each = Math.max(1, Math.floor(milliseconds / one / groups));
  const times = Array.from({ length: groups }, () => timed(each)).sort((a, b) => a - b);
  const lastLoss = step().loss.item();
  observe();
  const [plan] = step.report({ times: Number(options.kernels) > 0 });
  console.log(
    `Holdfast ${name} ${options.precision}: ${(times[groups >> 1] ?? 0).toFixed(3)} ms, best ${(times[0] ?? 0).toFixed(3)} ms, ` +
      `first call ${firstSeconds.toFixed(1)} s, peak ${(peak / 2 ** 20).toFixed(0)} MiB, ` +
      `loss ${firstLoss.toFixed(3)} → ${lastLoss.toFixed(3)}, ${model.parameterCount} parameters, ${plan?.calls?.length} calls, ${plan?.mode}`,
  );
  if (Number(options.kernels) > 0) {
    const byKernel = new Map<string, { us: number; count: number }>();
    for (const { op, kernel, us = 0 } of plan?.calls ?? []) {
      const key = `${kernel} <- ${op.slice(0, 80)}`;
      const known = byKernel.get(key) ?? { us: 0, count: 0 };
      byKernel.set(key, { us: known.us + us, count: known.count + 1 });
    }
    for (const [key, { us, count }] of [...byKernel]
      .sort(([, a], [, b]) => b.us - a.us)
      .slice(0, Number(options.kernels)))
      console.log(`${us.toFixed(1).padStart(10)} µs  ×${count}  ${key}`);
  }
  step.close();
  device.close();
}

const names = options.models === "all" ? Object.keys(everydayModels) : options.models.split(",");
for (const name of names) {
  const make = everydayModels[name];
  if (!make) throw new Error(`--models takes ${Object.keys(everydayModels).join(", ")}; this is "${name}".`);
  measure(name, make);
}
