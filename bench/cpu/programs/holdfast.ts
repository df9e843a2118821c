/** The training steps of the ten programs in Holdfast, by their own models. Arguments: `--eager` to not compile, and the program. */

import "../../source-modules.js";
import { autograd, Device, nn, optim, type Tensor } from "holdfast";
import * as compiledVariants from "../../../test/programs/compiled-variants.js";
import * as customParts from "../../../test/programs/custom-parts.js";
import * as diffusion from "../../../test/programs/diffusion.js";
import * as fineTune from "../../../test/programs/fine-tune.js";
import * as gpt from "../../../test/programs/gpt.js";
import * as lstm from "../../../test/programs/lstm.js";
import * as residualConvnet from "../../../test/programs/residual-convnet.js";
import * as tabular from "../../../test/programs/tabular.js";
import * as vae from "../../../test/programs/vae.js";
import { readRepositoryFile } from "../../../test/support/repository.js";
import { threads, type Weight } from "../workload.js";
import type { Input } from "./batches.js";
import { type Step, timeSteps } from "./time-steps.js";
import type { OptimizerOptions, ProgramName, Workload } from "./workloads.js";

const { binaryCrossEntropyWithLogits, crossEntropy, mseLoss } = nn.functional;
const cpu = new Device("cpu", { threads, stallAfter: "off", print: () => {} });

interface Program {
  readonly model: nn.Module;
  /** The loss of a batch, whose arrays are in the order of the workload. */
  readonly lossOf: (inputs: Tensor[]) => Tensor;
}

const withModel = <Model extends nn.Module>(
  model: Model,
  lossOf: (model: Model, ...inputs: Tensor[]) => Tensor,
): Program => ({ model, lossOf: (inputs) => lossOf(model, ...inputs) });

const programs: Readonly<Record<ProgramName, () => Program>> = {
  gpt: () =>
    withModel(new gpt.Gpt(), (model, ids, targets) =>
      crossEntropy(model.forward(ids!).narrow(1, 4, 4).reshape([-1, 11]), targets!),
    ),
  "residual-convnet": () =>
    withModel(
      new nn.Sequential(
        new nn.Conv2d(1, 8, 3, { padding: 1, bias: false }),
        new nn.BatchNorm2d(8),
        new nn.ReLU(),
        new residualConvnet.Residual(8, 8, 1),
        new residualConvnet.Residual(8, 16, 2),
        new nn.AdaptiveAvgPool2d(1),
        new nn.Flatten(),
        new nn.Linear(16, 4),
      ),
      (model, x, targets) => crossEntropy(model.forward(x!), targets!),
    ),
  lstm: () =>
    withModel(new lstm.Classifier(), (model, x, lengths, targets) =>
      crossEntropy(model.forward(x!, lengths!), targets!),
    ),
  vae: () =>
    withModel(new vae.Vae(), (model, x, noise) => {
      const h = model.encoder.forward(x!);
      const [mean, logVariance] = [model.mean.forward(h), model.logVariance.forward(h)];
      const logits = model.decoder.forward(mean.add(logVariance.mul(0.5).exp().mul(noise!)));
      const error = binaryCrossEntropyWithLogits(logits, x!, { reduction: "sum" });
      const divergence = logVariance.add(1).sub(mean.square()).sub(logVariance.exp()).sum().mul(-0.5);
      return error.add(divergence).div(256);
    }),
  diffusion: () =>
    withModel(new diffusion.Denoiser(), (model, points, noise, levels, signal) => {
      const noisy = points!.mul(signal!.sqrt()).add(noise!.mul(signal!.neg().add(1).sqrt()));
      return model.forward(noisy, levels!).sub(noise!).square().mean();
    }),
  tabular: () =>
    withModel(new tabular.Churn(), (model, numbers, categories, targets) =>
      binaryCrossEntropyWithLogits(model.forward(numbers!, categories!), targets!),
    ),
  "fine-tune": () =>
    withModel(new fineTune.Classifier(4), (model, x, targets) => crossEntropy(model.forward(x!), targets!)),
  service: () =>
    withModel(
      new nn.Sequential(new nn.Linear(2, 32), new nn.Tanh(), new nn.Linear(32, 1)),
      (model, x, targets) => mseLoss(model.forward(x!).squeeze(1), targets!),
    ),
  "compiled-variants": () =>
    withModel(new compiledVariants.Net(), (model, x, targets) => mseLoss(model.forward(x!), targets!)),
  "custom-parts"() {
    const ring = new customParts.RingModel().to(cpu);
    ring.output.weight.registerHook((gradient) => gradient.clamp(-0.1, 0.1));
    return withModel(ring, (model, x, targets) => {
      const h = model.input.forward(x!);
      const loss = binaryCrossEntropyWithLogits(model.forward(x!), targets!);
      const features = customParts.Sign.apply(h).detach().requiresGrad_();
      const logits = model.output.forward(model.hidden.forward(features).tanh());
      const [slope] = autograd.grad(logits.sum(), [features], { createGraph: true });
      return loss.add(slope!.square().sum(1).mean().mul(1e-3));
    });
  },
};

const optimizers: Readonly<
  Record<OptimizerOptions["kind"], (model: nn.Module, options: OptimizerOptions) => optim.Optimizer>
> = {
  adam: (model, { lr }) => new optim.Adam(model.parameters(), { lr }),
  adamw: (model, { lr, weightDecay = 0 }) => new optim.AdamW(model.parameters(), { lr, weightDecay }),
  sgd: (model, { lr, weightDecay = 0, momentum = 0 }) =>
    new optim.SGD(model.parameters(), { lr, weightDecay, momentum }),
  "soft-sign": (model, { lr, momentum = 0 }) =>
    new customParts.SoftSign(model.parameters(), { lr, momentum }),
};

/** Gives a model the workload's weights; their names, count and sizes have to be the model's. */
function setWeights(model: nn.Module, weights: readonly Weight[]): void {
  const parameters = new Map(model.namedParameters());
  const mine = [...parameters].map(([name, { shape }]) => `${name} ${shape}`).sort();
  const given = weights.map(({ name, shape }) => `${name} ${shape}`).sort();
  if (String(mine) !== String(given))
    throw new Error(`The model has the weights ${mine}, and the workload ${given}.`);
  for (const { name, data } of weights) cpu.write(parameters.get(name)!, data);
}

const toDevice = ({ data, shape }: Input): Tensor =>
  cpu.fromHost(data, [...shape], data instanceof Int32Array ? "i32" : "f32");

function prepare(name: ProgramName, { weights, optimizer: options, clipNorm, batches }: Workload): Step {
  const { model, lossOf } = programs[name]();
  model.to(cpu);
  setWeights(model, weights);
  const optimizer = optimizers[options.kind](model, options);
  const inputs = batches.map((batch) => Object.values(batch).map(toDevice));
  const train = (...args: Tensor[]): Tensor => {
    const loss = lossOf(args);
    loss.backward();
    if (clipNorm !== undefined) optim.clipGradNorm(model.parameters(), clipNorm);
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  };
  if (process.argv.includes("--eager")) return (index) => cpu.step(() => train(...inputs[index]!).item());
  const step = cpu.compile(train);
  return (index) => step(...inputs[index]!).item();
}

const { version } = JSON.parse(readRepositoryFile("package.json")) as { version: string };
await timeSteps(version, prepare);
cpu.close();
