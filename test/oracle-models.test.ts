/** Models from configs: logits, gradients, ten steps of AdamW and greedy text equal those of plain PyTorch, and those of transformers. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { models, noGrad, optim, type Tensor, tensor } from "holdfast";
import { hubName, isTransposed } from "../src/models/hub-layout.js";
import { openStrictDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { hubNumbers } from "./support/hub-weights.js";
import { callsOf, type ModelCase, type ModelInputs, modelOf, readModelCases } from "./support/model-cases.js";
import { isNear, type Tolerance } from "./tolerances.js";

/** The programs that wrote the files, and the dtype that they computed in. */
const files = [
  { file: "models.json", dtype: "f64", writer: "PyTorch", steps: 3 },
  { file: "transformers.json", dtype: "f32", writer: "transformers", steps: 2 },
] as const;
type Source = (typeof files)[number];

const device = openStrictDevice();

/** The cases whose greedy text is compared in every run: learned positions, windows, and norms of queries. */
const withText = new Set(["gpt2", "mistral", "qwen3"]);

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

function runCase(given: ModelCase, inputs: ModelInputs, { dtype, steps, writer }: Source): void {
  const tolerance: Tolerance =
    dtype === "f64" ? { relative: 2e-6, absolute: 2e-6 } : { relative: 5e-4, absolute: 5e-5 };
  const model = modelOf(device, given, dtype);
  const calls = callsOf(model, inputs);
  const logits = device.step(() => noGrad(() => calls.logits().dataSync()));
  near(logits as Float64Array, given.logits, tolerance, "logits");

  const greedy = given.greedy?.slice(0, effort({ quick: 12, thorough: 64 })) ?? [];
  const isCompared = effort({ quick: withText.has(given.name) && writer === "PyTorch", thorough: true });
  if (model instanceof models.LanguageModel && isCompared)
    assert.deepEqual(greedyText(model, inputs.prompt, greedy.length, dtype), greedy);

  const optimizer = new optim.AdamW(model.parameters(), { lr: inputs.learningRate });
  const summaries = new Map<string, readonly number[]>();
  const expected = given.losses.slice(0, effort({ quick: steps, thorough: 10 }));
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

/** Rounding errors are random: the logits in bf16 are as near to those in f32 as those of transformers. */
function compareInBf16(given: ModelCase, inputs: ModelInputs, bf16Logits: readonly number[]): void {
  const { logits } = callsOf(modelOf(device, given, "bf16"), inputs);
  const values = device.step(() => noGrad(() => logits().to("f32").dataSync())) as Float32Array;
  const error = (found: ArrayLike<number>): number =>
    Math.hypot(...given.logits.map((value, at) => value - found[at]!)) / Math.hypot(...given.logits);
  const [own, other] = [error(values), error(bf16Logits)];
  assert.ok(own <= 1.3 * other, `an error of ${own}; transformers has ${other}`);
}

for (const source of files) {
  const { inputs, cases } = readModelCases(source.file);
  describe(source.file, () => {
    for (const given of cases)
      test(`${given.name} has the logits, gradients and losses of ${source.writer}, and its text`, () => {
        runCase(given, inputs, source);
        if (given.bf16Logits) compareInBf16(given, inputs, given.bf16Logits);
      });
  });
}
