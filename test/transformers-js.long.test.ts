/** transformers.js loads folders of exportTransformersJs, and gives the same texts, states and classes. `npm run test:onnx -- --install` fetches it. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import {
  ByteTokenizer,
  exportTransformersJs,
  generate,
  loadTokenizer,
  manualSeed,
  modelFromConfig,
  type models,
  noGrad,
  savePretrained,
  tensor,
} from "holdfast";
import { openDevice } from "./support/devices.js";
import { makeFolder } from "./support/folders.js";
import { used } from "./support/onnx/exported-models.js";
import { findPackage, needsOnnxRuntime } from "./support/onnx/runtime.js";
import { repositoryRoot } from "./support/repository.js";

/** The parts of transformers.js that are used. */
interface TransformersJs {
  readonly env: { localModelPath: string; allowRemoteModels: boolean };
  readonly AutoTokenizer: { from_pretrained(name: string): Promise<JsTokenizer> };
  readonly AutoModelForCausalLM: { from_pretrained(name: string): Promise<JsDecoder> };
  readonly RawImage: new (
    data: Uint8ClampedArray,
    width: number,
    height: number,
    channels: number,
  ) => unknown;
  pipeline(task: string, name: string): Promise<(input: unknown, options?: object) => Promise<unknown>>;
}
interface JsTokenizer {
  padding_side: string;
  (texts: readonly string[], options: object): { readonly input_ids: { readonly dims: readonly number[] } };
}
interface JsDecoder {
  generate(options: object): Promise<{ tolist(): readonly (readonly bigint[])[] }>;
}

const cpu = openDevice({ threads: 1 });
const root = makeFolder();
const library = findPackage("@huggingface/transformers") as TransformersJs;
if (library) Object.assign(library.env, { localModelPath: root, allowRemoteModels: false });

const sizes = {
  vocab_size: 258,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const decoders: readonly models.ModelConfig[] = [
  { model_type: "gpt2", vocab_size: 258, n_positions: 128, n_embd: 32, n_layer: 2, n_head: 4 },
  { model_type: "llama", ...sizes, num_key_value_heads: 2 },
  { model_type: "mistral", ...sizes, num_key_value_heads: 2, sliding_window: 4 },
  { model_type: "qwen2", ...sizes, num_key_value_heads: 4, tie_word_embeddings: true },
  { model_type: "qwen3", ...sizes, num_key_value_heads: 1, head_dim: 12 },
];
const prompts = ["Hello", "A longer prompt", "x"];

for (const config of decoders)
  test(
    `transformers.js writes the texts of ${config["model_type"]}, in f32, in f16, and with weights in a second file`,
    needsOnnxRuntime,
    async () => {
      const tokenizer = new ByteTokenizer({ eosToken: "<end>", padToken: "<pad>" });
      for (const [name, dtype, externalDataAbove] of [
        ["whole", "f32", "1MiB"],
        ["external", "f32", "1KiB"],
        ["half", "f16", "1MiB"],
      ] as const) {
        manualSeed(5);
        const model = used(modelFromConfig(config), cpu).to(cpu, dtype).eval() as models.LanguageModel;
        const folder = `${String(config["model_type"])}-${name}`;
        exportTransformersJs(model, join(root, folder), { tokenizer, externalDataAbove });
        const js = await library.AutoTokenizer.from_pretrained(folder);
        js.padding_side = "left";
        const inputs = js(prompts, { padding: true });
        const decoder = await library.AutoModelForCausalLM.from_pretrained(folder);
        const found = (await decoder.generate({ ...inputs, max_new_tokens: 24, do_sample: false })).tolist();
        const expected = await generate(model, prompts, { tokenizer, maxNewTokens: 24 });
        // In f16 a lead may be smaller than a rounding error: the first tokens are compared.
        const count = dtype === "f16" ? 4 : 24;
        assert.ok(
          expected.reduce((sum, { tokens }) => sum + tokens.length, 0) > 48,
          "random texts rarely end early",
        );
        for (const [text, { tokens }] of expected.entries()) {
          const start = inputs.input_ids.dims[1]!;
          const ids = found[text]!.slice(start, start + tokens.length).map(Number);
          assert.deepEqual(ids.slice(0, count), [...tokens].slice(0, count), `${folder}, ${prompts[text]}`);
        }
      }
    },
  );

test(
  "transformers.js extracts the features of BERT, with its own tokens of types and words",
  needsOnnxRuntime,
  async () => {
    manualSeed(6);
    const { tokenizers } = JSON.parse(
      gunzipSync(readFileSync(join(repositoryRoot, "test/oracle/tokenizers.json.gz"))).toString(),
    ) as { tokenizers: readonly { name: string; parts: object }[] };
    const parts = tokenizers.find(({ name }) => name === "bert uncased")!.parts;
    const config = { model_type: "bert", ...sizes, vocab_size: 400, architectures: ["BertModel"] } as const;
    const model = used(modelFromConfig(config), cpu).eval();
    const folder = join(root, "bert");
    savePretrained(model, folder);
    writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(parts));
    const special = { pad_token: "[PAD]", unk_token: "[UNK]", cls_token: "[CLS]", sep_token: "[SEP]" };
    writeFileSync(
      join(folder, "tokenizer_config.json"),
      JSON.stringify({ tokenizer_class: "BertTokenizer", ...special }),
    );
    const tokenizer = loadTokenizer(folder);
    exportTransformersJs(model, folder, { tokenizer });
    const texts = ["It is a truth universally acknowledged", "a good fortune"];
    const extract = await library.pipeline("feature-extraction", "bert");
    const { dims, data } = (await extract(texts, { pooling: "mean" })) as {
      dims: number[];
      data: Float32Array;
    };
    assert.deepEqual(dims, [2, 32]);
    for (const [row, text] of texts.entries()) {
      const ids = tensor([[...tokenizer.encode(text)]], { dtype: "i32" });
      const expected = cpu.step(() => noGrad(() => model.forward(ids).mean(1).dataSync()));
      for (const [at, value] of expected.entries())
        assert.ok(Math.abs(data[row * 32 + at]! - Number(value)) < 1e-5, `${text} [${at}]`);
    }
  },
);

test("transformers.js classifies images with ViT", needsOnnxRuntime, async () => {
  manualSeed(7);
  const { vocab_size: _, ...encoder } = sizes;
  const id2label = { 0: "cat", 1: "dog", 2: "fish" };
  const head = { id2label, architectures: ["ViTForImageClassification"] };
  const config = { model_type: "vit", ...encoder, image_size: 16, patch_size: 4, ...head } as const;
  const model = used(modelFromConfig(config), cpu).eval();
  exportTransformersJs(model, join(root, "vit"));
  const bytes = Uint8ClampedArray.from({ length: 16 * 16 * 3 }, (_, at) => (at * 37) % 256);
  const classify = await library.pipeline("image-classification", "vit");
  const found = (await classify(new library.RawImage(bytes, 16, 16, 3))) as {
    label: string;
    score: number;
  }[];
  const pixels = tensor([...bytes].map((byte) => byte / 127.5 - 1))
    .reshape([1, 16, 16, 3])
    .permute([0, 3, 1, 2]);
  const scores = cpu.step(() => noGrad(() => model.forward(pixels).softmax(-1).dataSync()));
  for (const [at, label] of Object.values(id2label).entries()) {
    const { score = -1 } = found.find((one) => one.label === label) ?? {};
    assert.ok(Math.abs(score - Number(scores[at])) < 1e-5, `${label}: ${score}, ${scores[at]}`);
  }
});
