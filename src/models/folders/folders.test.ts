/** Folders of models: weights come back bit for bit with Hugging Face's names, and a hostile folder is rejected before memory is taken. */

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { hubWeight } from "../../../test/support/hub-weights.js";
import { rejects } from "../../../test/support/rejects.js";
import { loadSafetensors, type StoredTensor, saveSafetensors, writeSafetensors } from "../../data/index.js";
import { Parameter } from "../../nn/index.js";
import { tensor } from "../../tensor/index.js";
import { Bert } from "../bert.js";
import { hubName } from "../hub-layout.js";
import { LanguageModel } from "../language-model.js";
import { modelFromConfig } from "../model-from-config.js";
import { loadPretrained } from "./load-pretrained.js";
import { openModelFiles } from "./model-files.js";
import { readParameter } from "./read-parameter.js";
import { savePretrained } from "./save-pretrained.js";
import { writeParameter } from "./write-parameter.js";

const device = openStrictDevice();
const root = mkdtempSync(join(tmpdir(), "holdfast-models-"));
after(() => rmSync(root, { recursive: true }));

const gpt2 = { model_type: "gpt2", vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 2, n_head: 2 };
const llama = {
  ...{ model_type: "llama", vocab_size: 20, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2 },
};

let folders = 0;
function newFolder(): string {
  const folder = join(root, `model-${folders++}`);
  mkdirSync(folder);
  return folder;
}

/** Tensors by Hugging Face's names, with the weights of their names. */
function stored(shapes: Readonly<Record<string, readonly number[]>>): StoredTensor[] {
  return Object.entries(shapes).map(([name, shape]) => {
    const values = Float32Array.from(hubWeight(name, shape));
    return { name, dtype: "f32", shape, bytes: new Uint8Array(values.buffer) };
  });
}

const layerShapes = (layer: number) => ({
  [`h.${layer}.ln_1.weight`]: [8],
  [`h.${layer}.ln_1.bias`]: [8],
  [`h.${layer}.attn.c_attn.weight`]: [8, 24],
  [`h.${layer}.attn.c_attn.bias`]: [24],
  [`h.${layer}.attn.c_proj.weight`]: [8, 8],
  [`h.${layer}.attn.c_proj.bias`]: [8],
  [`h.${layer}.ln_2.weight`]: [8],
  [`h.${layer}.ln_2.bias`]: [8],
  [`h.${layer}.mlp.c_fc.weight`]: [8, 32],
  [`h.${layer}.mlp.c_fc.bias`]: [32],
  [`h.${layer}.mlp.c_proj.weight`]: [32, 8],
  [`h.${layer}.mlp.c_proj.bias`]: [8],
});
/** The tensors of GPT-2's own files: without a prefix, with masks, and without a head. */
const gpt2Shapes = {
  ...{ "wte.weight": [20, 8], "wpe.weight": [8, 8], "ln_f.weight": [8], "ln_f.bias": [8] },
  ...layerShapes(0),
  ...layerShapes(1),
};

function writeFolder(config: object, tensors: readonly StoredTensor[]): string {
  const folder = newFolder();
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  saveSafetensors(join(folder, "model.safetensors"), tensors, { format: "pt" });
  return folder;
}

const bytesOf = (folder: string, file = "model.safetensors"): ReadonlyMap<string, StoredTensor> =>
  loadSafetensors(join(folder, file)).tensors;

test("GPT-2's own files are read without their prefix and with transposed weights, and written with Hugging Face's names", () => {
  const masks = stored({ "h.0.attn.bias": [1, 1, 8, 8], "h.1.attn.masked_bias": [] });
  const tensors = stored(gpt2Shapes);
  const model = loadPretrained(writeFolder(gpt2, [...tensors, ...masks]), { device });
  assert.ok(model instanceof LanguageModel && !model.isTraining);
  const weight = model.parameters().find(({ name }) => name === "h.1.mlp.cFc.weight");
  assert.deepEqual(weight?.t().flatten().tolist(), [...hubWeight("h.1.mlp.c_fc.weight", [8, 32])]);

  const folder = newFolder();
  savePretrained(model, folder);
  const written = bytesOf(folder);
  assert.equal(written.size, tensors.length);
  for (const { name, shape, bytes } of tensors) {
    const found = written.get(`transformer.${name}`);
    assert.deepEqual([found?.shape, found?.bytes], [shape, bytes], name);
  }
  assert.deepEqual([...loadSafetensors(join(folder, "model.safetensors")).metadata], [["format", "pt"]]);
  assert.equal(JSON.parse(readFileSync(join(folder, "config.json"), "utf8")).torch_dtype, "float32");
});

test("shards have an index, and give the same model back bit for bit", () => {
  const model = modelFromConfig({ ...llama, model_type: "llama" }).to(device, "bf16");
  const folder = newFolder();
  savePretrained(model, folder, { maxShardBytes: 700 });
  const files = readdirSync(folder).sort();
  assert.deepEqual([files[0], files.at(-1)], ["config.json", "model.safetensors.index.json"]);
  const shards = files.slice(1, -1);
  assert.ok(
    shards.length > 2 && shards.every((name) => /^model-0000\d-of-0000\d\.safetensors$/.test(name)),
    shards.join(),
  );

  const ids = tensor([[3, 1, 4]], { dtype: "i32", device });
  for (const [dtype, frozen] of [
    ["bf16", true],
    [undefined, true],
    [undefined, false],
  ] as const) {
    const loaded = loadPretrained(folder, { device, frozen, ...(dtype && { dtype }) });
    assert.ok(loaded instanceof LanguageModel);
    const expected = frozen ? "bf16" : "f32";
    assert.ok(loaded.parameters().every((one) => one.dtype === expected && one.requiresGrad !== frozen));
    if (frozen) assert.deepEqual(loaded.forward(ids).tolist(), model.forward(ids).tolist());
  }

  // The files of an older model go away; others stay.
  writeFileSync(join(folder, "tokenizer.json"), "{}");
  savePretrained(model, folder);
  assert.deepEqual(readdirSync(folder).sort(), ["config.json", "model.safetensors", "tokenizer.json"]);
  savePretrained(model, folder, { maxShardBytes: 1e6, dtype: "f16" });
  assert.equal(bytesOf(folder).get("model.norm.weight")?.dtype, "f16");
});

test("weights that are longer than a piece come from several reads, and go into several writes", () => {
  const tensors = stored({ "wte.weight": [20, 8], "h.0.mlp.c_fc.weight": [8, 32] });
  const files = openModelFiles(writeFolder(gpt2, tensors));
  const model = modelFromConfig(gpt2).to(device, "bf16");
  for (const [path, parameter] of model.namedParameters()) {
    const isTransposed = path.endsWith("cFc.weight");
    const entry = files.tensors.get(hubName(model.hubLayout, path).slice("transformer.".length));
    if (!entry) continue;
    writeParameter({ ...entry, path, parameter, dtype: "f32", isTransposed }, new Uint8Array(72));
    const bytes = Buffer.concat([...readParameter({ parameter, dtype: "f32", isTransposed }, 36)]);
    assert.deepEqual(new Uint8Array(bytes), tensors.find(({ name }) => name === entry.tensor.name)?.bytes);
  }
  files.close();
});

test("a frozen model has no memory for gradients", () => {
  const before = device.diagnostics().budget.usedByLabel.gradients;
  loadPretrained(writeFolder(gpt2, stored(gpt2Shapes)), { device, frozen: true });
  assert.equal(device.diagnostics().budget.usedByLabel.gradients, before);
});

test("BERT's old files are read: without a prefix, with gamma and beta, and with a pooler and a second head", () => {
  const sizes = {
    vocab_size: 20,
    hidden_size: 8,
    intermediate_size: 12,
    num_hidden_layers: 1,
    num_attention_heads: 2,
  };
  const config = { model_type: "bert", ...sizes, architectures: ["BertForMaskedLM"] } as const;
  const folder = newFolder();
  savePretrained(modelFromConfig(config).to(device), folder);
  const old = [...bytesOf(folder).values()].map((one) => ({
    ...one,
    name: one.name
      .replace(/^bert\./, "")
      .replace("LayerNorm.weight", "LayerNorm.gamma")
      .replace("LayerNorm.bias", "LayerNorm.beta"),
  }));
  const more = stored({
    "pooler.dense.weight": [8, 8],
    "pooler.dense.bias": [8],
    "cls.seq_relationship.bias": [2],
    "embeddings.position_ids": [1, 8],
  });
  saveSafetensors(join(folder, "model.safetensors"), [...old, ...more]);
  const words = loadPretrained(folder, { device });
  assert.ok(words instanceof Bert && words.cls);
  assert.deepEqual(words.embeddings.layerNorm.weight?.tolist(), new Array(8).fill(1));

  const head = { config: { architectures: ["BertForSequenceClassification"], num_labels: 3 } };
  rejects(
    "BAD_STATE",
    () => loadPretrained(folder, { device, ...head }),
    /it lacks "classifier.weight", "classifier.bias"; and the model has no "cls\./,
  );
  const classes = loadPretrained(folder, {
    device,
    ...head,
    allowMissing: ["classifier"],
    allowExtra: ["cls"],
  });
  assert.ok(classes instanceof Bert && classes.pooler);
  assert.deepEqual(classes.pooler.dense.weight.flatten().tolist(), [
    ...hubWeight("pooler.dense.weight", [8, 8]),
  ]);
  assert.deepEqual(classes.forward(tensor([[1, 2]], { dtype: "i32", device })).shape, [1, 3]);
});

test("heads that the folder lacks, and tensors that the model lacks, need to be named", () => {
  const { "ln_f.bias": _, ...lacking } = gpt2Shapes;
  const folder = writeFolder(gpt2, stored({ ...lacking, "score.weight": [2, 8] }));
  rejects(
    "BAD_STATE",
    () => loadPretrained(folder, { device }),
    /it lacks "transformer.ln_f.bias"; and the model has no "score.weight"/,
  );
  const allowed = { allowMissing: ["transformer.ln_f"], allowExtra: ["score"] };
  const model = loadPretrained(folder, { device, ...allowed });
  assert.ok(model.parameters().every((parameter) => parameter instanceof Parameter && parameter.isPlaced));
});

/** A folder of two shards whose index is altered. */
function shardedFolder(alter: (map: Record<string, unknown>) => unknown): string {
  const folder = newFolder();
  savePretrained(modelFromConfig(gpt2).to(device), folder, { maxShardBytes: 3000 });
  const path = join(folder, "model.safetensors.index.json");
  const index = JSON.parse(readFileSync(path, "utf8")) as { weight_map: Record<string, unknown> };
  const altered = alter(index.weight_map);
  writeFileSync(path, typeof altered === "string" ? altered : JSON.stringify({ weight_map: altered }));
  return folder;
}

test("an index leads to no other folder, and agrees with its shards", () => {
  const first = "transformer.wte.weight";
  const faults: readonly (readonly [alter: (map: Record<string, unknown>) => unknown, message: RegExp])[] = [
    [
      (map) => ({ ...map, [first]: "../model.safetensors" }),
      /in the shard "..\/model.safetensors"; a shard is a file of the same folder/,
    ],
    [(map) => ({ ...map, [first]: "/etc/passwd" }), /in the shard "\/etc\/passwd"/],
    [(map) => ({ ...map, [first]: "..\\model.safetensors" }), /a file of the same folder/],
    [(map) => ({ ...map, [first]: 7 }), /in the shard 7/],
    [(map) => ({ ...map, [first]: "missing.safetensors" }), /missing\.safetensors can't be read: ENOENT/],
    [(map) => ({ ...map, more: map[first] }), /tensor "more" is not in "model-00001/],
    [({ [first]: _, ...map }) => map, /tensor "transformer.wte.weight" is in "model-00001.*has it nowhere/],
    [() => ({}), /it names 0 shards/],
    [() => [1], /it has no weight_map/],
    [() => '{"weight_map": ', /index.json is not JSON/],
    [() => "[]", /index.json: the file must be an object, but is a list of 0 values/],
  ];
  for (const [alter, message] of faults)
    rejects("BAD_FILE", () => loadPretrained(shardedFolder(alter), { device }), message);
});

test("a folder that does not fit its config, or is damaged, is rejected and takes no memory", () => {
  const before = device.diagnostics().budget.used;
  const tensors = stored(gpt2Shapes);
  const path = (folder: string): string => join(folder, "model.safetensors");
  rejects(
    "BAD_STATE",
    () => loadPretrained(writeFolder({ ...gpt2, n_positions: 9 }, tensors), { device }),
    /"wpe.weight" is \[8, 8\], and the config's is \[9, 8\]/,
  );
  rejects(
    "BAD_STATE",
    () => loadPretrained(writeFolder({ ...gpt2, n_layer: 900 }, tensors), { device }),
    /it lacks "transformer.h.2.ln_1.weight".* and \d+ more tensors/,
  );
  const wide = { ...gpt2, n_embd: 2 ** 24, vocab_size: 2 ** 24 };
  rejects(
    "BAD_STATE",
    () => loadPretrained(writeFolder(wide, tensors), { device }),
    /is \[20, 8\], and the config's is \[16777216, 16777216\]/,
  );
  const [first, ...others] = tensors;
  const integers = { ...first!, dtype: "i32" as const };
  rejects(
    "BAD_DTYPE",
    () => loadPretrained(writeFolder(gpt2, [integers, ...others]), { device }),
    /"wte.weight" has the dtype "I32"; weights are F64/,
  );

  const cut = writeFolder(gpt2, tensors);
  writeFileSync(path(cut), writeSafetensors(tensors).subarray(0, -1));
  rejects("BAD_FILE", () => loadPretrained(cut, { device }), /but the file has \d+ bytes of data/);
  writeFileSync(join(cut, "config.json"), "not json");
  rejects("BAD_FILE", () => loadPretrained(cut, { device }), /config.json is not JSON/);
  rejects(
    "BAD_FILE",
    () => loadPretrained(join(root, "none"), { device }),
    /config.json can't be read: ENOENT/,
  );
  rmSync(path(cut));
  writeFileSync(join(cut, "config.json"), JSON.stringify(gpt2));
  rejects(
    "BAD_FILE",
    () => loadPretrained(cut, { device }),
    /has neither model.safetensors nor model.safetensors.index.json/,
  );
  rejects("BAD_ARGUMENT", () => loadPretrained(cut, {} as never), /loadPretrained takes a device/);
  assert.equal(device.diagnostics().budget.used, before);
});

test("the class of a model gives the result its type, and a model of another class is rejected", () => {
  const folder = newFolder();
  savePretrained(modelFromConfig(gpt2).to(device), folder);
  const model = loadPretrained(folder, { device, modelClass: LanguageModel });
  const ids = tensor([[3, 1, 4]], { dtype: "i32", device });
  assert.ok(model.loss(ids, ids).item() > 0, "a language model has a loss, without a cast");
  rejects(
    "BAD_ARGUMENT",
    () => loadPretrained(folder, { device, modelClass: Bert }),
    /config\.json describes a model of the class Gpt2, and modelClass is Bert/,
  );
});
