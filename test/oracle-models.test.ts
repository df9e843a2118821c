/** Models from configs: logits, gradients, ten steps of AdamW and greedy text equal those of plain PyTorch, and those of transformers. */

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { modelFromConfig, models, noGrad, optim, type Tensor, tensor } from "holdfast";
import { hubName, isTransposed } from "../src/models/hub-layout.js";
import { openStrictDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { hubNumbers, hubWeight } from "./support/hub-weights.js";
import { readRepositoryFile, repositoryRoot } from "./support/repository.js";
import { isNear, type Tolerance } from "./tolerances.js";

interface ModelCase {
  readonly name: string;
  readonly config: models.ModelConfig;
  readonly logits: readonly number[];
  /** Of each parameter by its name in files: the norm of the gradient, and its product with fixed numbers. */
  readonly gradients: Readonly<Record<string, readonly [number, number]>>;
  /** Of ten steps of AdamW. */
  readonly losses: readonly number[];
  /** The most likely tokens after the prompt, before these steps. */
  readonly greedy?: readonly number[];
}

interface Inputs {
  readonly ids: number[][];
  readonly labels: number[][];
  readonly maskedLabels: number[][];
  readonly classes: number[];
  readonly attentionMask: number[][];
  readonly tokenTypes: number[][];
  readonly prompt: readonly number[];
  readonly learningRate: number;
}

/** Files by the dtype that they were computed in. */
const files = { "models.json": "f64", "transformers.json": "f32" } as const;

const device = openStrictDevice();

/** The cases whose greedy text is compared in every run: learned positions, windows, and norms of queries. */
const withText = new Set(["gpt2", "mistral", "qwen3"]);

/** The model of a case with the weights of its names. */
function modelOf({ config }: ModelCase, dtype: "f32" | "f64"): models.PretrainedModel {
  const model = modelFromConfig(config).to(device, dtype);
  for (const [path, parameter] of model.namedParameters()) {
    const [rows = 1, columns = 1] = parameter.shape;
    const name = hubName(model.hubLayout, path);
    const isStoredTransposed = isTransposed(model.hubLayout, path);
    const values = hubWeight(name, isStoredTransposed ? [columns, rows] : parameter.shape);
    parameter.initialize(() => (isStoredTransposed ? transposed(values, columns, rows) : values));
  }
  return model;
}

function transposed(values: Float64Array, rows: number, columns: number): Float64Array {
  return Float64Array.from(values, (_, at) => values[(at % rows) * columns + Math.floor(at / rows)]!);
}

function near(
  actual: ArrayLike<number>,
  expected: readonly number[],
  tolerance: Tolerance,
  what: string,
): void {
  assert.equal(actual.length, expected.length, what);
  for (const [at, value] of expected.entries())
    assert.ok(isNear(actual[at]!, value, tolerance), `${what} [${at}]: ${actual[at]} is not ${value}`);
}

interface Calls {
  logits(): Tensor;
  loss(): Tensor;
}

/** The calls of a model with the inputs of its case. */
function callsOf(model: models.PretrainedModel, inputs: Inputs, dtype: "f32" | "f64"): Calls {
  const whole = (values: number[] | number[][]): Tensor => tensor(values, { dtype: "i32", device });
  const ids = whole(inputs.ids);
  if (model instanceof models.LanguageModel)
    return { logits: () => model.forward(ids), loss: () => model.loss(ids, whole(inputs.labels)) };
  if (model instanceof models.Bert) {
    const options = { attentionMask: whole(inputs.attentionMask), tokenTypes: whole(inputs.tokenTypes) };
    const labels = whole(model.cls ? inputs.maskedLabels : inputs.classes);
    return { logits: () => model.forward(ids, options), loss: () => model.loss(ids, labels, options) };
  }
  assert.ok(model instanceof models.Vit);
  const pixels = hubNumbers("images", 2 * 3 * 8 * 8);
  const images = tensor(pixels, { dtype, device }).reshape([2, 3, 8, 8]);
  return { logits: () => model.forward(images), loss: () => model.loss(images, whole(inputs.classes)) };
}

function runCase(given: ModelCase, inputs: Inputs, dtype: "f32" | "f64"): void {
  const tolerance: Tolerance =
    dtype === "f64" ? { relative: 2e-6, absolute: 2e-6 } : { relative: 5e-4, absolute: 5e-5 };
  const model = modelOf(given, dtype);
  const calls = callsOf(model, inputs, dtype);
  const logits = device.step(() => noGrad(() => calls.logits().dataSync()));
  near(logits as Float64Array, given.logits, tolerance, "logits");

  const greedy = given.greedy?.slice(0, effort({ quick: 12, thorough: 64 })) ?? [];
  if (model instanceof models.LanguageModel && effort({ quick: withText.has(given.name), thorough: true }))
    assert.deepEqual(greedyText(model, inputs.prompt, greedy.length, dtype), greedy);

  const optimizer = new optim.AdamW(model.parameters(), { lr: inputs.learningRate });
  const summaries = new Map<string, readonly number[]>();
  const expected = given.losses.slice(0, effort({ quick: 3, thorough: 10 }));
  const losses = expected.map((_, step) =>
    device.step(() => {
      const loss = calls.loss();
      loss.backward();
      if (step === 0)
        for (const [path, { grad }] of model.namedParameters())
          summaries.set(...summaryOf(model, path, grad!));
      optimizer.step();
      optimizer.zeroGrad();
      return loss.item();
    }),
  );
  assert.deepEqual([...summaries.keys()].sort(), Object.keys(given.gradients).sort());
  for (const [name, summary] of summaries)
    near(summary, given.gradients[name]!, tolerance, `gradient of ${name}`);
  near(losses, expected, tolerance, "losses");
}

/** A gradient's norm and its product with fixed numbers, with the layout of files. */
function summaryOf(model: models.PretrainedModel, path: string, grad: Tensor): [string, readonly number[]] {
  const name = hubName(model.hubLayout, path);
  const values = (
    isTransposed(model.hubLayout, path) ? grad.t().contiguous() : grad
  ).dataSync() as Float64Array;
  const factors = hubNumbers(`gradient of ${name}`, values.length);
  let [squares, product] = [0, 0];
  for (const [at, value] of values.entries()) {
    squares += value * value;
    product += value * factors[at]!;
  }
  return [name, [Math.sqrt(squares), product]];
}

/** The most likely tokens after a prompt, with a cache: one prefill, then a token at a time in one compiled step. */
function greedyText(
  model: models.LanguageModel,
  prompt: readonly number[],
  count: number,
  dtype: "f32" | "f64",
): number[] {
  const cache = model.newCache({ batch: 1, maxLength: prompt.length + count }).to(device, dtype);
  const row = (values: readonly number[]): Tensor => tensor([[...values]], { dtype: "i32", device });
  const next = (ids: Tensor, positions: Tensor): Tensor =>
    noGrad(() =>
      model
        .forward(ids, { positions, cache })
        .select(1, ids.shape[1]! - 1)
        .argmax(-1),
    );
  const tokens = [device.step(() => next(row(prompt), row([...prompt.keys()])).item())];
  const step = device.compile(next);
  while (tokens.length < count) {
    const position = prompt.length + tokens.length - 1;
    tokens.push(device.step(() => step(row([tokens.at(-1)!]), row([position])).item()));
  }
  return tokens;
}

for (const [file, dtype] of Object.entries(files)) {
  if (!existsSync(join(repositoryRoot, "test/oracle", file))) continue;
  const { inputs, cases } = JSON.parse(readRepositoryFile(`test/oracle/${file}`)) as {
    inputs: Inputs;
    cases: ModelCase[];
  };
  describe(file, () => {
    for (const given of cases)
      test(`${given.name} has the logits, gradients and losses of PyTorch, and its text`, () =>
        runCase(given, inputs, dtype));
  });
}
