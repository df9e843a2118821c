/** Generation: the cache, batches, sampling, stop strings, streams and cancellation, on the device under test. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  ByteTokenizer,
  type GenerateOptions,
  Generator,
  generate,
  HoldfastError,
  manualSeed,
  modelFromConfig,
  models,
  noGrad,
  tensor,
} from "holdfast";
import { prefixSums, selectTokens } from "../src/generate/sampling.js";
import { GeneratorSteps } from "../src/generate/steps.js";
import { StopText } from "../src/generate/stop-text.js";
import { openStrictDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";

const device = openStrictDevice();
manualSeed(5);

const common = { vocab_size: 259, initializer_range: 0.4 };
const gpt = language({ model_type: "gpt2", ...common, n_positions: 64, n_embd: 16, n_layer: 2, n_head: 2 });
const llamaSizes = { hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 4 };
const llama = language({
  ...{ model_type: "qwen3", ...common, ...llamaSizes, num_key_value_heads: 2, head_dim: 4 },
  ...{ max_position_embeddings: 64, sliding_window: 5, use_sliding_window: true, max_window_layers: 1 },
});
const tokenizer = new ByteTokenizer({ eosToken: "<end>" });

function language(config: Record<string, unknown>): models.LanguageModel {
  const model = modelFromConfig(config).to(device).eval();
  assert.ok(model instanceof models.LanguageModel);
  return model;
}

/** Greedy text by whole calls of the model. */
function withoutCache(model: models.LanguageModel, prompt: readonly number[], count: number): number[] {
  const ids = [...prompt];
  for (let at = 0; at < count; at++) {
    const next = device.step(() =>
      noGrad(() => {
        const logits = model.forward(tensor([ids], { dtype: "i32", device }));
        return logits
          .select(1, ids.length - 1)
          .argmax(-1)
          .item();
      }),
    );
    ids.push(next);
  }
  return ids.slice(prompt.length);
}

const prompts = [
  [72, 101, 108, 108, 111, 32, 119],
  [1],
  Array.from({ length: 19 }, (_, at) => (7 * at) % 250),
];

for (const [name, model] of Object.entries({ gpt2: gpt, "qwen3 with windows": llama })) {
  test(`${name}: greedy text with a cache, alone and together, is that without one`, async () => {
    const options = { maxNewTokens: 12, stopIds: [] };
    const expected = prompts.map((prompt) => withoutCache(model, prompt, 12));
    const together = await generate(model, prompts, { ...options, slots: 3 });
    assert.deepEqual(
      together.map(({ tokens }) => tokens),
      expected,
    );
    // One slot: each text starts in the cache of another.
    const inTurn = await generate(model, prompts, { ...options, slots: 1 });
    assert.deepEqual(
      inTurn.map(({ tokens }) => tokens),
      expected,
    );
  });
}

test("a seed gives the same text alone and with others, and another seed another text", async () => {
  const generator = new Generator(gpt, { slots: 3 });
  for (const settings of [
    { temperature: 1 },
    { temperature: 0.9, topK: 7, topP: 0.9, repetitionPenalty: 1.2 },
  ] satisfies GenerateOptions[]) {
    const textOf = (seed: number, prompt: readonly number[] = [5, 6]) =>
      generator.start(prompt, { ...settings, seed, maxNewTokens: 16, stopIds: [] }).result();
    const alone = await textOf(11);
    const [, , again, other] = await Promise.all([
      textOf(1, [9]),
      textOf(2, [3, 4, 5]),
      textOf(11),
      textOf(12),
    ]);
    assert.deepEqual(again, alone);
    assert.notDeepEqual(other, alone);
  }
  generator.close();
});

describe("sampling", () => {
  const logits = [2, -1, 0.5, 1, -3];
  const draws = Array.from({ length: 400 }, (_, at) => (at + 0.5) / 400);

  /** The share of each token among evenly spaced draws. */
  function shares(kind: "draw" | "filter", { temperature = 1, topK = 5, topP = 1 }): number[] {
    const chosen = device.step(() => {
      const column = (value: number, dtype: "f32" | "i32" = "f32") => tensor([[value]], { dtype, device });
      return selectTokens(
        tensor(
          draws.map(() => logits),
          { device },
        ),
        kind,
        {
          ...{ temperature: column(temperature), topK: column(topK, "i32"), topP: column(topP) },
          draw: tensor(
            draws.map((draw) => [draw]),
            { device },
          ),
        },
      ).tolist() as number[];
    });
    return logits.map((_, token) => chosen.filter((found) => found === token).length / draws.length);
  }

  /** The probabilities that the options define. */
  function expected({ temperature = 1, topK = 5, topP = 1 }): number[] {
    const weights = logits.map((logit) => Math.exp(logit / temperature));
    const order = [0, 3, 2, 1, 4].slice(0, topK);
    const sum = order.reduce((total, token) => total + (weights[token] ?? 0), 0);
    let before = 0;
    const kept = order.filter((token) => {
      const isKept = before < topP * sum;
      before += weights[token] ?? 0;
      return isKept;
    });
    const total = kept.reduce((all, token) => all + (weights[token] ?? 0), 0);
    return weights.map((weight, token) => (kept.includes(token) ? weight / total : 0));
  }

  for (const [kind, options] of [
    ["draw", {}],
    ["draw", { temperature: 0.5 }],
    ["filter", { temperature: 2 }],
    ["filter", { topK: 3 }],
    ["filter", { topP: 0.7 }],
    ["filter", { temperature: 1.5, topK: 4, topP: 0.8 }],
    ["filter", { topK: 1 }],
    ["filter", { topP: 1e-6 }],
  ] as const) {
    test(`${kind} with ${JSON.stringify(options)} has the probabilities of the softmax`, () => {
      const found = shares(kind, options);
      for (const [token, share] of expected(options).entries())
        assert.ok(
          Math.abs((found[token] ?? 0) - share) <= 0.006,
          `token ${token}: ${found[token]}, not ${share}`,
        );
    });
  }

  test("prefix sums in blocks are those of a scan", () => {
    for (const columns of [1, 2, 7, 16, 259]) {
      const row = Array.from({ length: columns }, (_, at) => (at * 5) % 7);
      let sum = 0;
      const sums = row.map((value) => (sum += value));
      assert.deepEqual(
        device.step(() => prefixSums(tensor([row], { dtype: "f32", device })).tolist()),
        [sums],
      );
    }
  });
});

test("a repetition penalty of a large number never repeats a token", async () => {
  const [result] = await generate(gpt, [[5, 6]], { maxNewTokens: 30, repetitionPenalty: 1e6 });
  const all = [5, 6, ...(result?.tokens ?? [])];
  assert.equal(new Set(all).size, all.length);
});

test("text ends before a stop string that begins and ends inside of pieces", () => {
  for (const [pieces, stops, text, isStopped] of [
    [["Hello wo", "rld! St", "op he", "re"], ["Stop"], "Hello world! ", true],
    [["aab", "aab", "c"], ["aabc"], "aab", true],
    [["a", "b", "a", "b", "x"], ["abc"], "ababx", false],
    [["one two"], ["two", "one"], "", true],
    [["x\n", "\n"], ["\n\n"], "x", true],
    [["x\n"], ["\n\n"], "x\n", false],
  ] as const) {
    const matcher = new StopText(stops);
    let found = "";
    let stopped = false;
    for (const piece of pieces) {
      const part = matcher.push(piece);
      found += part.text;
      stopped = part.isStopped;
      if (stopped) break;
    }
    if (!stopped) found += matcher.end();
    assert.deepEqual([found, stopped], [text, isStopped]);
  }
});

test("stop strings and stop ids end a text before them", async () => {
  const generator = new Generator(gpt, { tokenizer });
  const whole = await generator.start("Hello", { maxNewTokens: 24, stopIds: [] }).result();
  assert.equal(whole.finishReason, "length");
  const stop = whole.text.slice(4, 7);
  const stopped = await generator.start("Hello", { maxNewTokens: 24, stopIds: [], stop }).result();
  assert.deepEqual(
    [stopped.finishReason, stopped.text],
    ["stop", whole.text.slice(0, whole.text.indexOf(stop))],
  );
  const id = whole.tokens[5] ?? -1;
  const byId = await generator.start("Hello", { maxNewTokens: 24, stopIds: [id] }).result();
  assert.deepEqual(byId.tokens, whole.tokens.slice(0, whole.tokens.indexOf(id)));
  generator.close();
});

test("pieces of a stream are whole characters, and add up to the text", async () => {
  const generator = new Generator(gpt, { tokenizer });
  const generation = generator.start("Hi", { maxNewTokens: 40, temperature: 3, seed: 2, stopIds: [] });
  const [pieces, tokens]: [string[], number[]] = [[], []];
  await Promise.all([
    (async () => {
      for await (const piece of generation.pieces()) pieces.push(piece);
    })(),
    (async () => {
      for await (const token of generation.tokens()) tokens.push(token);
    })(),
  ]);
  const result = await generation.result();
  assert.deepEqual([pieces.join(""), tokens], [result.text, result.tokens]);
  assert.equal(result.text, tokenizer.decode(result.tokens, { skipSpecialTokens: true }));
  assert.ok(pieces.length > 1);
  generator.close();
});

test("an aborted signal ends a text, frees its slot for the next one, and closing frees the memory", async () => {
  const before = device.diagnostics().budget.usedByLabel;
  const generator = new Generator(gpt, { slots: 1 });
  const abort = new AbortController();
  const first = generator.start([1, 2, 3], { maxNewTokens: 60, stopIds: [], signal: abort.signal });
  const second = generator.start([1, 2, 3], { maxNewTokens: 3, stopIds: [] });
  let count = 0;
  await assert.rejects(async () => {
    for await (const _ of first.tokens()) if (++count === 2) abort.abort(new Error("enough"));
  }, /enough/);
  await assert.rejects(first.result(), /enough/);
  assert.equal((await second.result()).tokens.length, 3);
  assert.deepEqual([generator.running, generator.waiting], [0, 0]);
  await assert.rejects(generator.start([1], { signal: abort.signal }).result(), /enough/);
  generator.close();
  const { weights, "weight copies": copies } = device.diagnostics().budget.usedByLabel;
  assert.deepEqual([weights, copies], [before.weights, before["weight copies"]]);
  rejects("CLOSED", () => generator.start([1]), /closed/);
});

test("a text generated while the model is trained is one in evaluation mode, and leaves each module in its mode", async () => {
  const [, [, part] = assert.fail()] = gpt.namedModules();
  const modes = () => Array.from(gpt.namedModules(), ([, module]) => module.isTraining);
  for (const isTraining of [true, false]) {
    gpt.train(isTraining);
    part.train(!isTraining);
    const before = modes();
    await generate(gpt, [[1, 2]], { maxNewTokens: 2 });
    assert.deepEqual(modes(), before);
  }
  gpt.eval();
});

test("the next token uses the weights of that moment", async () => {
  const generator = new Generator(gpt);
  const weight = gpt.parameters()[0] ?? assert.fail();
  const original = weight.detach().clone().keep();
  const generation = generator.start([5, 6], { maxNewTokens: 6, stopIds: [] });
  const expected = withoutCache(gpt, [5, 6], 2);
  const tokens: number[] = [];
  for await (const token of generation.tokens()) {
    tokens.push(token);
    // All logits become equal, so the first id is the likeliest.
    if (tokens.length === 2) device.step(() => noGrad(() => void weight.zero_()));
  }
  assert.deepEqual(tokens, [...expected, 0, 0, 0, 0]);
  device.step(() => noGrad(() => void weight.copy_(original)));
  generator.close();
});

test("a prompt that needs too much memory fails alone, and the others go on", async () => {
  const generator = new Generator(gpt, { slots: 2 });
  const prefill = GeneratorSteps.prototype.prefill;
  const options = { maxNewTokens: 20, stopIds: [] };
  const expected = await generator.start([5, 6], options).result();
  const first = generator.start([5, 6], options);
  await first.tokens().next();
  GeneratorSteps.prototype.prefill = () => {
    throw new HoldfastError("OUT_OF_BUDGET", "too much");
  };
  await assert.rejects(generator.start([1, 2, 3], options).result(), { code: "OUT_OF_BUDGET" });
  GeneratorSteps.prototype.prefill = prefill;
  assert.deepEqual(await Promise.all([first.result(), generator.start([5, 6], options).result()]), [
    expected,
    expected,
  ]);
  generator.close();
});

test("a wrong prompt or option is rejected with its number", () => {
  const generator = new Generator(gpt, { maxLength: 8 });
  rejects("BAD_ARGUMENT", () => generator.start([1, 400]), /id 400/);
  rejects("BAD_ARGUMENT", () => generator.start([]), /no tokens/);
  rejects("BAD_ARGUMENT", () => generator.start([1, 2, 3, 4, 5, 6, 7, 8]), /8 tokens/);
  rejects("BAD_ARGUMENT", () => generator.start("text"), /needs a tokenizer/);
  rejects("BAD_ARGUMENT", () => generator.start([1], { temperature: -1 }), /temperature is -1/);
  rejects("BAD_ARGUMENT", () => generator.start([1], { topP: 0 }), /topP is 0/);
  rejects("BAD_ARGUMENT", () => new Generator(gpt, { maxLength: 65 }), /maxLength is 65/);
  generator.close();
});
