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
import { printKernels, timeTraining } from "./time-training.js";

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
  const seconds = Number(options.seconds);
  const { firstSeconds, medianMs, bestMs, peakMiB, firstLoss, lastLoss } = timeTraining(device, step, {
    ...{ seconds, groups: 9 },
    warmUp: { steps: 0, ms: 1000 * seconds },
  });
  const [plan] = step.report();
  console.log(
    `Holdfast ${name} ${options.precision}: ${medianMs.toFixed(3)} ms, best ${bestMs.toFixed(3)} ms, ` +
      `first call ${firstSeconds.toFixed(1)} s, peak ${peakMiB.toFixed(0)} MiB, ` +
      `loss ${firstLoss.toFixed(3)} → ${lastLoss.toFixed(3)}, ${model.parameterCount} parameters, ${plan?.calls?.length} calls, ${plan?.mode}`,
  );
  if (Number(options.kernels) > 0) printKernels(step, Number(options.kernels));
  step.close();
  device.close();
}

const names = options.models === "all" ? Object.keys(everydayModels) : options.models.split(",");
for (const name of names) {
  const make = everydayModels[name];
  if (!make) throw new Error(`--models takes ${Object.keys(everydayModels).join(", ")}; this is "${name}".`);
  measure(name, make);
}
