/** Folders for transformers.js: their files and names, and decoders with a cache, in the plain interpreter. */

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import {
  ByteTokenizer,
  exportTransformersJs,
  manualSeed,
  modelFromConfig,
  type models,
  noGrad,
  rand,
  type Tensor,
  tensor,
} from "holdfast";
import { openDevice } from "./support/devices.js";
import { makeFolder } from "./support/folders.js";
import type { PlainArray } from "./support/onnx/arrays.js";
import { interpreter, type PlainFeeds, plainOf } from "./support/onnx/compare.js";
import { rejects } from "./support/rejects.js";

const cpu = openDevice({ threads: 1 });
const root = makeFolder();

const sizes = {
  vocab_size: 20,
  hidden_size: 16,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const configs: readonly models.ModelConfig[] = [
  { model_type: "gpt2", vocab_size: 20, n_positions: 16, n_embd: 16, n_layer: 2, n_head: 2 },
  { model_type: "llama", ...sizes, num_key_value_heads: 2 },
  { model_type: "mistral", ...sizes, num_key_value_heads: 1, sliding_window: 3 },
];

let folders = 0;
function exportTo(model: models.PretrainedModel, options = {}): string {
  const folder = join(root, String(folders++));
  exportTransformersJs(model, folder, options);
  return folder;
}

const json = (folder: string, name: string): Record<string, unknown> =>
  JSON.parse(readFileSync(join(folder, name), "utf8")) as Record<string, unknown>;

const whole = (rows: readonly (readonly number[])[]): PlainArray => ({
  ...{ dtype: "i64", shape: [rows.length, rows[0]!.length], data: rows.flat() },
});

/** Logits of all rows, with calls of these lengths and the cache between them, as transformers.js makes them. */
async function logitsInCalls(
  folder: string,
  ids: readonly (readonly number[])[],
  mask: readonly (readonly number[])[],
  lengths: readonly number[],
): Promise<number[][][]> {
  const run = await interpreter.open(join(folder, "onnx/model.onnx"));
  const { layers, heads, width } = cacheOf(folder);
  const empty: PlainArray = { dtype: "f32", shape: [ids.length, heads, 0, width], data: [] };
  let past: Record<string, PlainArray> = Object.fromEntries(
    Array.from({ length: layers }, (_, layer) =>
      ["key", "value"].map((part) => `past_key_values.${layer}.${part}`),
    )
      .flat()
      .map((name) => [name, empty]),
  );
  const found: number[][][] = ids.map(() => []);
  let from = 0;
  for (const length of lengths) {
    const [end, cut] = [
      from + length,
      <T>(rows: readonly (readonly T[])[]) => rows.map((row) => row.slice(from, from + length)),
    ];
    const positions = mask.map((row) =>
      row.map(
        (_, at) =>
          Math.max(
            1,
            row.slice(0, at + 1).reduce((a, b) => a + b, 0),
          ) - 1,
      ),
    );
    const feeds: PlainFeeds = {
      input_ids: whole(cut(ids)),
      attention_mask: whole(mask.map((row) => row.slice(0, end))),
      position_ids: whole(cut(positions)),
      ...past,
    };
    const { logits, ...present } = await run(feeds);
    assert.deepEqual(logits?.shape, [ids.length, length, 20]);
    past = Object.fromEntries(
      Object.entries(present).map(([name, array]) => [
        name.replace("present", "past_key_values"),
        array as PlainArray,
      ]),
    );
    for (const [text, rows] of found.entries())
      for (let row = 0; row < length; row++) {
        const start = (text * length + row) * 20;
        rows.push(Array.from({ length: 20 }, (_, at) => logits!.data[start + at]!));
      }
    from = end;
  }
  return found;
}

function cacheOf(folder: string): { layers: number; heads: number; width: number } {
  const { config } = modelFromConfig(withoutSettings(folder));
  const number = (...names: string[]): number =>
    Number(names.map((name) => config[name]).find((one) => one !== undefined));
  const heads = number("n_head", "num_attention_heads");
  return {
    layers: number("n_layer", "num_hidden_layers"),
    heads: number("num_key_value_heads", "n_head", "num_attention_heads"),
    width: number("n_embd", "hidden_size") / heads,
  };
}

function withoutSettings(folder: string): models.ModelConfig {
  const { "transformers.js_config": _, ...config } = json(folder, "config.json");
  return config;
}

function requireNear(
  actual: readonly number[],
  expected: readonly number[],
  what: string,
  tolerance = 1e-5,
): void {
  assert.equal(actual.length, expected.length, what);
  for (const [at, value] of expected.entries())
    assert.ok(Math.abs(actual[at]! - value) < tolerance, `${what} [${at}]: ${actual[at]} is not ${value}`);
}

for (const config of configs)
  test(`${config["model_type"]} with an empty cache and a growing one gives the logits of the whole text`, async () => {
    manualSeed(3);
    const model = modelFromConfig(config).to(cpu).eval() as models.LanguageModel;
    const folder = exportTo(model);
    const text = [3, 1, 4, 1, 5, 9, 2];
    const expected = cpu.step(() =>
      noGrad(() =>
        model
          .forward(tensor([text], { dtype: "i32" }))
          .select(0, 0)
          .tolist(),
      ),
    ) as number[][];
    const [found] = await logitsInCalls(folder, [text], [text.map(() => 1)], [4, 1, 1, 1]);
    for (const [row, logits] of found!.entries()) requireNear(logits, expected[row]!, `row ${row}`);
    // The second text is padded on its left.
    const rows = [text, [0, 0, ...text.slice(0, 5)]];
    const mask = [text.map(() => 1), [0, 0, 1, 1, 1, 1, 1]];
    const [, padded] = await logitsInCalls(folder, rows, mask, [6, 1]);
    for (const [row, logits] of padded!.slice(2).entries())
      requireNear(logits, expected[row]!, `padded row ${row}`);
  });

test("encoders and image classifiers have the inputs and results of transformers.js", async () => {
  manualSeed(4);
  const bert = { model_type: "bert", ...sizes, max_position_embeddings: 16 };
  const ids = [
    [3, 1, 4, 1],
    [5, 9, 0, 0],
  ];
  const mask = ids.map((row) => row.map(Math.sign));
  const i32 = (values: number[][]): Tensor => tensor(values, { dtype: "i32" });
  for (const architecture of ["BertModel", "BertForMaskedLM", "BertForSequenceClassification"]) {
    const model = modelFromConfig({ ...bert, architectures: [architecture], model_type: "bert" })
      .to(cpu)
      .eval();
    const run = await interpreter.open(join(exportTo(model), "onnx/model.onnx"));
    const found = await run({
      input_ids: whole(ids),
      attention_mask: whole(mask),
      token_type_ids: whole(mask),
    });
    const expected = cpu.step(() =>
      noGrad(() => plainOf(model.forward(i32(ids), { attentionMask: i32(mask), tokenTypes: i32(mask) }))),
    );
    const name = architecture === "BertModel" ? "last_hidden_state" : "logits";
    assert.deepEqual(Object.keys(found), [name]);
    requireNear(Array.from(found[name]!.data), expected.data, architecture);
  }
  const { vocab_size: _, ...encoder } = sizes;
  const vit = { model_type: "vit", ...encoder, image_size: 8, patch_size: 4, num_labels: 3 };
  const model = modelFromConfig({ ...vit, architectures: ["ViTForImageClassification"], model_type: "vit" })
    .to(cpu)
    .eval();
  const folder = exportTo(model, { preprocessorConfig: { image_mean: [0, 0, 0] } });
  const run = await interpreter.open(join(folder, "onnx/model.onnx"));
  const pixels = rand([3, 3, 8, 8]);
  const { logits } = await run({ pixel_values: plainOf(pixels) });
  requireNear(
    Array.from(logits!.data),
    cpu.step(() => noGrad(() => plainOf(model.forward(pixels)))).data,
    "vit",
  );
  const { size, image_mean: mean, image_std: std } = json(folder, "preprocessor_config.json");
  assert.deepEqual(
    { size, mean, std },
    { size: { height: 8, width: 8 }, mean: [0, 0, 0], std: [0.5, 0.5, 0.5] },
  );
});

test("a folder has the files of its tokenizer, with the template where transformers.js reads it", () => {
  const model = modelFromConfig({ ...configs[0], vocab_size: 257, model_type: "gpt2" }).to(cpu, "f16");
  const tokenizer = new ByteTokenizer({ eosToken: "<|end|>", chatTemplate: "{{ messages }}" });
  const folder = exportTo(model, { tokenizer, externalDataAbove: "1KiB" });
  assert.deepEqual(readdirSync(join(folder, "onnx")), ["model.onnx", "model.onnx_data"]);
  assert.deepEqual(json(folder, "config.json")["transformers.js_config"], {
    dtype: "fp32",
    use_external_data_format: true,
  });
  assert.equal(json(folder, "tokenizer_config.json")["chat_template"], "{{ messages }}");
  assert.equal(json(folder, "generation_config.json")["eos_token_id"], 256);
  assert.ok(existsSync(join(folder, "tokenizer.json")));
  rejects(
    "BAD_ARGUMENT",
    () => exportTransformersJs({} as never, folder),
    /takes a model of modelFromConfig/,
  );
});
