/**
 * Training steps of a language model of the size of Qwen2.5-0.5B, with random weights: full fine-tuning, or LoRA of rank 16 with a frozen
 * base in bf16, in all projections or in those of attention.
 * `language_models_peer.py` is the same in PyTorch with transformers and PEFT.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/language-models.js [--task full|lora] [--targets all|attention] [--rank 16]
 *     [--dropout 0] [--batch 8] [--tokens 1024] [--layers 24] [--precision bf16] [--seconds 8] [--kernels 30] [--checkpointing]
 *     [--device cuda]
 */

import "../source-modules.js";
import { applyLora, Device, fromTyped, manualSeed, modelFromConfig, models, optim } from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { qwenHalfBillion } from "./language-model-sizes.js";
import { printKernels, timeTraining } from "./time-training.js";

const options = readOptions(import.meta.url, {
  task: { type: "string", default: "full" },
  targets: { type: "string", default: "all" },
  rank: { type: "string", default: "16" },
  dropout: { type: "string", default: "0" },
  batch: { type: "string", default: "8" },
  tokens: { type: "string", default: "1024" },
  layers: { type: "string", default: "24" },
  vocabulary: { type: "string", default: `${qwenHalfBillion.vocab_size}` },
  precision: { type: "string", default: "bf16" },
  seconds: { type: "string", default: "8" },
  kernels: { type: "string", default: "0" },
  checkpointing: { type: "boolean", default: false },
  device: { type: "string", default: "cuda" },
});

const attentionLayers = ["q_proj", "k_proj", "v_proj", "o_proj"];
const [batch, tokens] = [Number(options.batch), Number(options.tokens)];
const config = {
  ...qwenHalfBillion,
  num_hidden_layers: Number(options.layers),
  vocab_size: Number(options.vocabulary),
};

const device = new Device(options.device === "cpu" ? "cpu" : "cuda", {
  precision: options.precision === "tf32" ? "tf32" : options.precision === "f32" ? "f32" : "bf16",
  print: () => {},
});
manualSeed(42);
const isLora = options.task === "lora";
const model = modelFromConfig(config);
if (!(model instanceof models.LanguageModel)) throw new Error("no language model");
if (isLora) {
  // Frozen before it is placed, so that it never has memory for gradients.
  model.requiresGrad_(false).to(device, "bf16");
  const [rank, dropout] = [Number(options.rank), Number(options.dropout)];
  const targets = options.targets === "attention" ? attentionLayers : "all-linear";
  applyLora(model, { rank, alpha: 2 * rank, dropout, targets });
} else model.to(device);
model.train();
model.gradientCheckpointing = options.checkpointing;
const parameters = model.parameters().filter(({ requiresGrad }) => requiresGrad);
const optimizer = new optim.AdamW(parameters, { lr: 1e-5, weightDecay: 0.01 });

const values = new Int32Array(batch * tokens);
let state = 1;
for (let index = 0; index < values.length; index++) {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  values[index] = state % config.vocab_size;
}
const ids = device.keep(fromTyped(values, [batch, tokens], { device }));

const step = device.compile(() => {
  const loss = model.loss(ids, ids);
  loss.backward();
  optim.clipGradNorm(parameters, 1);
  optimizer.step();
  optimizer.zeroGrad();
  return { loss };
});

const { firstSeconds, medianMs, bestMs, peakMiB, firstLoss, lastLoss } = timeTraining(device, step, {
  ...{ seconds: Number(options.seconds), groups: 8 },
  warmUp: { steps: 40, ms: 0 },
});

const adapters = isLora ? ` of rank ${options.rank} in ${options.targets} layers` : "";
console.log(
  `Holdfast, ${options.task}${adapters}, ${options.precision}, ${batch} × ${tokens} tokens: ${medianMs.toFixed(2)} ms, best ${bestMs.toFixed(2)} ms, ` +
    `${((1000 * batch * tokens) / medianMs).toFixed(0)} tokens/s, first call ${firstSeconds.toFixed(1)} s, peak ${peakMiB.toFixed(0)} MiB, ` +
    `loss ${firstLoss.toFixed(3)} → ${lastLoss.toFixed(3)}, ${model.parameterCount} parameters, ` +
    `${parameters.reduce((sum, { numel }) => sum + numel, 0)} of them trained`,
);
if (Number(options.kernels) > 0) printKernels(step, Number(options.kernels));
step.close();
device.close();
