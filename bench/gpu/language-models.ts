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
const { runtime } = device;
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
for (let index = 0; index < 40; index++) one = timed(1);
observe();
const groups = 8;
const each = Math.max(1, Math.floor((1000 * Number(options.seconds)) / one / groups));
const times = Array.from({ length: groups }, () => timed(each)).sort((a, b) => a - b);
const median = times[groups >> 1] ?? Number.NaN;
const lastLoss = step().loss.item();
observe();

const adapters = isLora ? ` of rank ${options.rank} in ${options.targets} layers` : "";
console.log(
  `Holdfast, ${options.task}${adapters}, ${options.precision}, ${batch} × ${tokens} tokens: ${median.toFixed(2)} ms, best ${(times[0] ?? 0).toFixed(2)} ms, ` +
    `${((1000 * batch * tokens) / median).toFixed(0)} tokens/s, first call ${firstSeconds.toFixed(1)} s, peak ${(peak / 2 ** 20).toFixed(0)} MiB, ` +
    `loss ${firstLoss.toFixed(3)} → ${lastLoss.toFixed(3)}, ${model.parameterCount} parameters, ` +
    `${parameters.reduce((sum, { numel }) => sum + numel, 0)} of them trained`,
);
if (Number(options.kernels) > 0) {
  const [plan] = step.report({ times: true });
  const byKernel = new Map<string, { us: number; count: number }>();
  for (const { op, kernel, us = 0 } of plan?.calls ?? []) {
    const key = `${kernel} <- ${op.slice(0, 80)}`;
    const known = byKernel.get(key) ?? { us: 0, count: 0 };
    byKernel.set(key, { us: known.us + us, count: known.count + 1 });
  }
  const sorted = [...byKernel].sort(([, a], [, b]) => b.us - a.us);
  console.log(`${plan?.calls?.length ?? 0} calls, ${plan?.mode}`);
  for (const [key, { us, count }] of sorted.slice(0, Number(options.kernels)))
    console.log(`${us.toFixed(1).padStart(10)} µs  ×${count}  ${key}`);
}
step.close();
device.close();
