/**
 * Generation by language models with random weights in bf16: tokens per second of 1 and of 32 texts, the time of a decode step, and its
 * kernels. `decode_peer.py` is the same in PyTorch with transformers.
 *
 *   node --conditions=holdfast-source dist/bench/gpu/decode.js [--models half,large,seven] [--texts 1,32] [--prompt 16] [--tokens 100]
 *     [--layers N] [--vocabulary N] [--bandwidth 4.8] [--kernels 16] [--without PHASE,…] [--device cuda]
 *
 * A decode step reads every weight once, except the rows of an embedding table that it does not look up. `--bandwidth` is that of the GPU's
 * memory in TB/s, 4.8 for an H200.
 */

import "../source-modules.js";
import {
  type CompiledStep,
  Device,
  Generator,
  manualSeed,
  modelFromConfig,
  models,
  type Tensor,
} from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { qwenHalfBillion, qwenLarger, qwenSevenBillion } from "./language-model-sizes.js";

const options = readOptions(import.meta.url, {
  models: { type: "string", default: "half,large,seven" },
  texts: { type: "string", default: "1,32" },
  prompt: { type: "string", default: "16" },
  tokens: { type: "string", default: "100" },
  layers: { type: "string" },
  vocabulary: { type: "string" },
  bandwidth: { type: "string", default: "4.8" },
  kernels: { type: "string", default: "16" },
  without: { type: "string", default: "" },
  device: { type: "string", default: "cuda" },
});

const sizes = { half: qwenHalfBillion, large: qwenLarger, seven: qwenSevenBillion } as const;
/** The phases that `--without` switches off. */
const without = Object.fromEntries(
  options.without.split(",").flatMap((name) => (name ? [[name, false]] : [])),
);
const [promptLength, tokens] = [Number(options.prompt), Number(options.tokens)];
const summary: string[] = [];

for (const name of options.models.split(",")) {
  if (!(name in sizes))
    throw new Error(`--models takes ${Object.keys(sizes).join(", ")}; this is "${name}".`);
  await measureModel(name as keyof typeof sizes);
}
console.log(["", ...summary].join("\n"));

async function measureModel(name: keyof typeof sizes): Promise<void> {
  const device = new Device(options.device === "cpu" ? "cpu" : "cuda", {
    precision: "bf16",
    print: () => {},
  });
  const config = {
    ...sizes[name],
    ...(options.layers && { num_hidden_layers: Number(options.layers) }),
    ...(options.vocabulary && { vocab_size: Number(options.vocabulary) }),
  };
  manualSeed(42);
  const model = modelFromConfig(config).to(device, "bf16").eval();
  if (!(model instanceof models.LanguageModel)) throw new Error("no language model");
  // A step looks up rows of the embedding table, and reads all of it only if it is the head too.
  const lookedUp = config.tie_word_embeddings ? 0 : config.vocab_size * config.hidden_size;
  const bytes = 2 * (model.parameterCount - lookedUp);
  const limitMs = bytes / (Number(options.bandwidth) * 1e9);
  console.log(
    `${name}: ${(bytes / 1e9).toFixed(2)} GB of weights; at ${options.bandwidth} TB/s ${limitMs.toFixed(3)} ms per step`,
  );
  for (const texts of options.texts.split(",").map(Number)) {
    const line = await measureTexts(device, model, texts, limitMs);
    summary.push(`Holdfast, ${name}, ${line}`);
    console.log(summary.at(-1));
  }
  device.close();
}

async function measureTexts(
  device: Device,
  model: models.LanguageModel,
  texts: number,
  limitMs: number,
): Promise<string> {
  const steps: CompiledStep<[], Tensor>[] = [];
  const { compile } = device;
  // The generator compiles its steps by this method: the decode step is timed by itself later.
  Object.defineProperty(device, "compile", {
    configurable: true,
    value: (...[body, settings]: Parameters<typeof compile>) => {
      const step = compile.call(device, body, { ...settings, passes: { ...settings?.passes, ...without } });
      steps.push(step as unknown as CompiledStep<[], Tensor>);
      return step;
    },
  });
  const generator = new Generator(model, { slots: texts, maxLength: promptLength + tokens, stopIds: [] });
  const generate = async (count: number): Promise<number> => {
    const prompt = Array.from(
      { length: promptLength },
      (_, index) => (index * 7919 + 1) % model.vocabularySize,
    );
    const generations = Array.from({ length: texts }, () => generator.start(prompt, { maxNewTokens: count }));
    const started = performance.now();
    const results = await Promise.all(generations.map((generation) => generation.result()));
    const seconds = (performance.now() - started) / 1000;
    return results.reduce((sum, result) => sum + result.tokens.length, 0) / seconds;
  };
  const started = performance.now();
  await generate(tokens);
  const firstSeconds = (performance.now() - started) / 1000;
  const rates = [await generate(tokens), await generate(tokens)];
  const step = steps.at(-1);
  if (!step) throw new Error("The generator has compiled no step.");
  const stepMs = timeStep(device, step);
  printKernels(step);
  generator.close();
  Reflect.deleteProperty(device, "compile");
  const share = (100 * limitMs) / stepMs;
  return (
    `${texts} texts: ${Math.max(...rates).toFixed(0)} tokens/s, ${stepMs.toFixed(3)} ms per step, ${share.toFixed(0)} % of the ` +
    `bandwidth limit, first call ${firstSeconds.toFixed(1)} s`
  );
}

/** The time of a step without the host, in milliseconds: the median of several groups of replays. */
function timeStep(device: Device, step: CompiledStep<[], Tensor>): number {
  const timed = (count: number): number => {
    const started = performance.now();
    for (let index = 0; index < count; index++) step();
    device.runtime.synchronize();
    return (performance.now() - started) / count;
  };
  const each = Math.max(2, Math.min(200, Math.floor(150 / timed(2))));
  const times = Array.from({ length: 5 }, () => timed(each)).sort((a, b) => a - b);
  return times[2] ?? Number.NaN;
}

function printKernels(step: CompiledStep<[], Tensor>): void {
  const count = Number(options.kernels);
  if (count === 0) return;
  const plan = step.report({ times: true }).at(-1);
  const kernels = new Map<string, { us: number; calls: number }>();
  for (const { op, kernel, shape, us = 0 } of plan?.calls ?? []) {
    const key = `${kernel}  ${shape}  <- ${op}`.slice(0, 110);
    const known = kernels.get(key) ?? { us: 0, calls: 0 };
    kernels.set(key, { us: known.us + us, calls: known.calls + 1 });
  }
  const sum = [...kernels.values()].reduce((total, { us }) => total + us, 0);
  console.log(`  ${plan?.calls.length ?? 0} calls, ${sum.toFixed(0)} µs, ${plan?.mode}`);
  const sorted = [...kernels].sort(([, a], [, b]) => b.us - a.us);
  for (const [key, { us, calls }] of sorted.slice(0, count))
    console.log(
      `${us.toFixed(1).padStart(9)} µs ${(us / calls).toFixed(2).padStart(7)} each  ×${calls}  ${key}`,
    );
}
