/** LoRA: PEFT's products, names and files; merging; and hostile folders. */

import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { loadSafetensors, type StoredTensor, saveSafetensors } from "../../data/index.js";
import { functional, init, Linear, type Module, Sequential } from "../../nn/index.js";
import { AdamW } from "../../optim/index.js";
import { manualSeed, randn, type Tensor, tensor } from "../../tensor/index.js";
import { loadPretrained } from "../folders/load-pretrained.js";
import { savePretrained } from "../folders/save-pretrained.js";
import type { LanguageModel } from "../language-model.js";
import { modelFromConfig } from "../model-from-config.js";
import { applyLora, mergeLora, removeLora, unmergeLora } from "./apply.js";
import { adaptedLayers } from "./linear-layers.js";
import { loadLora } from "./load-lora.js";
import { saveLora } from "./save-lora.js";

const device = openStrictDevice();
const root = mkdtempSync(join(tmpdir(), "holdfast-lora-"));
after(() => rmSync(root, { recursive: true }));
let folders = 0;
const newFolder = (): string => join(root, `adapter-${folders++}`);

const sizes = {
  vocab_size: 20,
  hidden_size: 8,
  intermediate_size: 12,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const llama = { model_type: "llama", ...sizes, num_key_value_heads: 2 } as const;
const gpt2 = {
  model_type: "gpt2",
  vocab_size: 20,
  n_positions: 8,
  n_embd: 8,
  n_layer: 2,
  n_head: 2,
} as const;
const bert = {
  ...sizes,
  model_type: "bert",
  num_labels: 3,
  architectures: ["BertForSequenceClassification"],
} as const;

const newLlama = (dtype: "f32" | "bf16" = "f32") => modelFromConfig(llama).to(device, dtype);
const ids = tensor([[3, 1, 4, 1, 5]], { dtype: "i32", device });

/** Random values for B, which starts as zeros. */
function fillB(model: Module): void {
  for (const { adapter } of adaptedLayers(model)) adapter.loraB.initialize(init.normal(0, 0.3));
}

const logitsOf = (model: LanguageModel): number[] => model.forward(ids).flatten().tolist() as number[];
const maxDifference = (a: readonly number[], b: readonly number[]): number =>
  Math.max(...a.map((value, index) => Math.abs(value - (b[index] ?? Number.NaN))));

test("a layer with LoRA computes PEFT's sum, and its gradients are those of A, B and the input", () => {
  manualSeed(3);
  const base = new Linear(5, 3).to(device, "f64");
  const weights = base.weight.tolist() as number[][];
  const model = applyLora(new Sequential(base), { rank: 2, alpha: 6, targets: ["0"] });
  fillB(model);
  const [{ adapter }] = adaptedLayers(model) as [ReturnType<typeof adaptedLayers>[number]];
  const x = randn([4, 5], { dtype: "f64", device }).requiresGrad_();
  const up = randn([4, 3], { dtype: "f64", device });
  const y = model.forward(x);
  y.mul(up).sum().backward();

  const [xs, ups] = [x.tolist(), up.tolist()] as [number[][], number[][]];
  const [a, b] = [adapter.loraA.tolist(), adapter.loraB.tolist()] as [number[][], number[][]];
  const bias = base.bias?.tolist() as number[];
  const product = (p: readonly number[][], q: readonly number[][]): number[][] =>
    p.map((row) => q[0]!.map((_, j) => row.reduce((sum, value, k) => sum + value * q[k]![j]!, 0)));
  const flip = (m: readonly number[][]): number[][] => m[0]!.map((_, j) => m.map((row) => row[j]!));
  const scaled = (m: readonly number[][], by: number): number[][] => m.map((row) => row.map((v) => v * by));
  const near = (found: unknown, wanted: readonly number[][]): void =>
    assert.ok(maxDifference((found as number[][]).flat(), wanted.flat()) < 1e-12);
  const whole = weights.map((row, i) => row.map((v, j) => v + 3 * product(b, a)[i]![j]!));
  near(
    y.tolist(),
    product(xs, flip(whole)).map((row) => row.map((v, j) => v + bias[j]!)),
  );
  near(adapter.loraA.grad?.tolist(), product(scaled(flip(product(ups, b)), 3), xs));
  near(adapter.loraB.grad?.tolist(), product(scaled(flip(ups), 3), product(xs, flip(a))));
  near(x.grad?.tolist(), product(ups, whole));
  assert.equal(base.weight.grad, null);
});

test("a new adapter changes no bit, its parameters are in f32, and the frozen base has no gradients", () => {
  for (const dtype of ["f32", "bf16"] as const) {
    const model = newLlama(dtype);
    const before = logitsOf(model);
    applyLora(model, { rank: 4, targets: "all-linear" });
    assert.deepEqual(logitsOf(model), before);
    const trained = [...model.namedParameters()].filter(([, { requiresGrad }]) => requiresGrad);
    assert.equal(trained.length, 2 * 2 * 7);
    assert.ok(trained.every(([path, one]) => /\.adapter\.lora[AB]$/.test(path) && one.dtype === "f32"));
    assert.ok([...model.layers][0]?.selfAttn.qProj.weight.dtype === dtype);
  }
  const layer = applyLora(new Sequential(new Linear(64, 2)).to(device), { rank: 32, targets: ["0"] });
  const [a] = adaptedLayers(layer);
  const values = a?.adapter.loraA.flatten().tolist() as number[];
  const bound = 1 / Math.sqrt(64); // kaiming uniform with a = √5
  assert.ok(Math.max(...values) > 0.99 * bound && values.every((value) => Math.abs(value) <= bound));
});

test("frozen weights get no memory for gradients, whether LoRA is applied before the model is placed or after", () => {
  const used = (): number => device.diagnostics().budget.usedByLabel.gradients ?? 0;
  const newModel = (): Sequential => new Sequential(new Linear(2048, 2048)); // 16 MiB
  const limit = used() + 8 * 2 ** 20;
  applyLora(newModel(), { rank: 1, targets: ["0"] }).to(device);
  assert.ok(used() < limit);
  const model = newModel().to(device);
  assert.ok(used() > limit);
  const x = randn([1, 2048], { device });
  model.forward(x).sum().backward();
  applyLora(model, { rank: 1, targets: ["0"] });
  assert.ok(used() < limit);
  model.forward(x).sum().backward();
  const [layer] = [...model] as [Linear];
  assert.equal(Boolean(layer.weight.grad), false);
  layer.weight.requiresGrad = true;
  model.forward(x).sum().backward();
  assert.deepEqual(layer.weight.grad?.select(0, 7).tolist(), x.select(0, 0).tolist());
});

test("targets are names of Hugging Face or of Holdfast, PEFT's defaults, or all linear layers but the head", () => {
  const targetsOf = (model: Module): string => {
    const ends = adaptedLayers(model).map(({ hubPath }) => hubPath.replace(/.*\.\d+\./, ""));
    return [...new Set(ends)].join();
  };
  assert.equal(targetsOf(applyLora(newLlama())), "self_attn.q_proj,self_attn.v_proj");
  assert.equal(targetsOf(applyLora(modelFromConfig(gpt2))), "attn.c_attn");
  assert.equal(targetsOf(applyLora(modelFromConfig(bert))), "attention.self.query,attention.self.value");
  const attention = "self_attn.q_proj,self_attn.k_proj,self_attn.v_proj,self_attn.o_proj";
  const all = `${attention},mlp.gate_proj,mlp.up_proj,mlp.down_proj`;
  const untied = modelFromConfig({ ...llama, tie_word_embeddings: false });
  assert.equal(targetsOf(applyLora(untied, { targets: "all-linear" })), all);
  const some = applyLora(newLlama(), { targets: ["kProj", "layers.1.mlp.down_proj", "0.selfAttn.oProj"] });
  assert.equal(targetsOf(some), "self_attn.k_proj,self_attn.o_proj,mlp.down_proj");
  assert.equal(adaptedLayers(some).length, 4);

  rejects(
    "BAD_ARGUMENT",
    () => applyLora(newLlama(), { targets: ["q_proj", "mlp"] }),
    /no linear layer is called "mlp"\. Its linear layers are called q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head\./,
  );
  rejects("BAD_ARGUMENT", () => applyLora(newLlama(), { targets: [] }), /there are no targets/);
  rejects(
    "BAD_ARGUMENT",
    () => applyLora(new Sequential(new Linear(2, 2))),
    /Sequential has no default targets.*called 0/,
  );
  rejects("BAD_STATE", () => applyLora(some), /has LoRA adapters already/);
  for (const wrong of [
    { rank: 1e9 },
    { rank: 0.5 },
    { rank: 0 },
    { alpha: 0 },
    { alpha: Number.NaN },
    { dropout: 1 },
  ])
    rejects("BAD_ARGUMENT", () => applyLora(newLlama(), wrong), /LoRA: (rank|alpha|dropout) is/);
  rejects("BAD_ARGUMENT", () => applyLora(newLlama(), { r: 8 } as never), /unknown option r/);
  class Twice extends Linear {
    override forward(x: Tensor): Tensor {
      return functional.linear(x, this.weight).mul(2);
    }
  }
  rejects(
    "UNSUPPORTED",
    () => applyLora(new Sequential(new Twice(2, 2)), { targets: "all-linear" }),
    /a Twice with a forward/,
  );
});

test("training changes only A and B, and a compiled step has the bits of the eager one", () => {
  const train = (isCompiled: boolean): { losses: number[]; model: LanguageModel } => {
    manualSeed(5);
    const model = newLlama();
    applyLora(model, { rank: 2, alpha: 4, dropout: 0.25, targets: "all-linear", useRslora: true }).train();
    const optimizer = new AdamW(
      model.parameters().filter(({ requiresGrad }) => requiresGrad),
      { lr: 0.05 },
    );
    const body = (): { loss: Tensor } => {
      const loss = model.loss(ids, ids);
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return { loss };
    };
    const step = isCompiled ? device.compile(body) : undefined;
    const once = (): number => (step ? step().loss.item() : device.step(() => body().loss.item()));
    const losses = Array.from({ length: 6 }, once);
    step?.close();
    return { losses, model };
  };
  const eager = train(false);
  const compiled = train(true);
  assert.deepEqual(compiled.losses, eager.losses);
  assert.ok(eager.losses.at(-1)! < eager.losses[0]!);
  manualSeed(5);
  const fresh = newLlama();
  const trained = new Map(eager.model.namedParameters());
  const other = new Map(compiled.model.namedParameters());
  for (const [path, parameter] of trained)
    assert.deepEqual(other.get(path)?.tolist(), parameter.tolist(), path);
  for (const [path, parameter] of fresh.namedParameters())
    assert.deepEqual(trained.get(path)?.tolist(), parameter.tolist(), path);
});

test("a merged model has the logits of the unmerged one, and merging is undone", () => {
  const model = applyLora(newLlama(), { rank: 2, alpha: 3, targets: "all-linear" });
  const weight = [...model.layers][1]!.mlp.upProj.weight;
  const [before, plain] = [weight.flatten().tolist() as number[], logitsOf(model)];
  fillB(model);
  const logits = logitsOf(model);
  assert.ok(maxDifference(logits, plain) > 1e-3);
  mergeLora(mergeLora(model));
  assert.ok(maxDifference(logitsOf(model), logits) < 1e-5);
  assert.ok(maxDifference(weight.flatten().tolist() as number[], before) > 1e-3);

  const folder = newFolder();
  savePretrained(model, folder);
  const merged = loadPretrained(folder, { device }) as LanguageModel;
  assert.deepEqual(logitsOf(merged), logitsOf(model));

  unmergeLora(model);
  assert.ok(maxDifference(weight.flatten().tolist() as number[], before) < 1e-6);
  assert.ok(maxDifference(logitsOf(model), logits) < 1e-5);
  rejects("BAD_STATE", () => savePretrained(model, folder), /LoRA adapters that are not in its weights/);
  removeLora(model);
  assert.ok(maxDifference(logitsOf(model), plain) < 1e-5);
  rejects("BAD_STATE", () => mergeLora(model), /has no LoRA adapters/);

  const tied = new Sequential(new Linear(3, 3), new Linear(3, 3)).to(device);
  const [first, second] = [...tied] as [Linear, Linear];
  second.weight = first.weight;
  rejects("BAD_STATE", () => mergeLora(applyLora(tied, { targets: ["1"] })), /the weight of 1 is shared/);
});

test("files have PEFT's names, shapes and fields, and give the same adapter back bit for bit", () => {
  const cases = [
    [llama, { rank: 2, alpha: 6, dropout: 0.1, useRslora: true, targets: ["q_proj", "down_proj"] }],
    [gpt2, { rank: 3, targets: ["c_attn", "mlp.c_proj"] }],
  ] as const;
  for (const [config, options] of cases) {
    const model = modelFromConfig(config).to(device) as LanguageModel;
    const plain = new Map([...model.namedParameters()].map(([path, one]) => [path, one.tolist()]));
    applyLora(model, options);
    fillB(model);
    const logits = logitsOf(model.eval());
    const folder = newFolder();
    saveLora(model, folder);
    assert.deepEqual(readdirSync(folder).sort(), ["adapter_config.json", "adapter_model.safetensors"]);
    loadLora(removeLora(model), folder);
    assert.deepEqual(logitsOf(model), logits);
    assert.ok(model.parameters().every(({ requiresGrad }) => !requiresGrad));
    loadLora(removeLora(model), folder, { trainable: true });
    const trained = [...model.namedParameters()].filter(([, { requiresGrad }]) => requiresGrad);
    assert.equal(trained.length, 2 * adaptedLayers(model).length);
    for (const [path, values] of plain)
      assert.deepEqual(new Map(model.namedParameters()).get(path)?.tolist(), values);
    const again = newFolder();
    saveLora(model, again);
    for (const file of readdirSync(folder))
      assert.deepEqual(readFileSync(join(again, file)), readFileSync(join(folder, file)));

    const { tensors, metadata } = loadSafetensors(join(folder, "adapter_model.safetensors"));
    const written = JSON.parse(readFileSync(join(folder, "adapter_config.json"), "utf8"));
    assert.deepEqual([...metadata], [["format", "pt"]]);
    assert.equal(written.peft_type, "LORA");
    if (config === llama) {
      const name = "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight";
      assert.deepEqual(
        [tensors.size, tensors.get(name)?.shape, tensors.get(name)?.dtype],
        [8, [2, 12], "f32"],
      );
      const { r, lora_alpha, lora_dropout, use_rslora, target_modules, fan_in_fan_out, task_type } = written;
      assert.deepEqual([r, lora_alpha, lora_dropout, use_rslora, task_type], [2, 6, 0.1, true, "CAUSAL_LM"]);
      assert.deepEqual([target_modules, fan_in_fan_out], [["down_proj", "q_proj"], false]);
    } else {
      const shapes = ["lora_A", "lora_B"].map(
        (matrix) => tensors.get(`base_model.model.transformer.h.0.attn.c_attn.${matrix}.weight`)?.shape,
      );
      assert.deepEqual(shapes, [
        [3, 8],
        [24, 3],
      ]);
      assert.equal(written.fan_in_fan_out, true);
      // c_proj is also in attention, so only whole paths select the layers.
      assert.ok(written.target_modules.includes("transformer.h.1.mlp.c_proj"));
    }
  }
});

test("modules that are trained whole are saved with the adapter, and a trained parameter is never lost", () => {
  const model = modelFromConfig(bert).to(device);
  applyLora(model, { rank: 1, modulesToSave: ["classifier"] });
  assert.ok(model.classifier?.weight.requiresGrad);
  const folder = newFolder();
  saveLora(model, folder);
  const { tensors } = loadSafetensors(join(folder, "adapter_model.safetensors"));
  assert.ok(tensors.has("base_model.model.classifier.weight"));
  const other = loadLora(modelFromConfig(bert).to(device), folder);
  assert.deepEqual(other.classifier?.weight.tolist(), model.classifier?.weight.tolist());
  model.pooler?.dense.requiresGrad_();
  rejects("BAD_STATE", () => saveLora(model, folder), /pooler.dense.weight, pooler.dense.bias are trained/);
  rejects(
    "BAD_ARGUMENT",
    () => applyLora(modelFromConfig(bert), { modulesToSave: ["score"] }),
    /no module is called "score"/,
  );
});

/** An adapter folder of the small llama whose parts are altered. */
function alteredFolder(
  config: Readonly<Record<string, unknown>> | string,
  alter: (tensors: StoredTensor[]) => readonly StoredTensor[] = (tensors) => tensors,
): string {
  const folder = newFolder();
  saveLora(applyLora(newLlama(), { rank: 2 }), folder);
  const path = join(folder, "adapter_config.json");
  const text = readFileSync(path, "utf8");
  writeFileSync(
    path,
    typeof config === "string" ? config : JSON.stringify({ ...JSON.parse(text), ...config }),
  );
  const weights = join(folder, "adapter_model.safetensors");
  saveSafetensors(weights, alter([...loadSafetensors(weights).tensors.values()]));
  return folder;
}

test("a hostile folder is rejected by name, and the model stays as it was", () => {
  const model = newLlama();
  const renamed = (to: string) => (tensors: StoredTensor[]) =>
    tensors.map((one, at) => (at === 0 ? { ...one, name: to } : one));
  const faults: readonly (readonly [
    code: "BAD_STATE" | "BAD_ARGUMENT" | "BAD_FILE" | "BAD_DTYPE",
    folder: string,
    message: RegExp,
  ])[] = [
    [
      "BAD_STATE",
      alteredFolder({ r: 3 }),
      /is \[2, 8\], and by the model and adapter_config.json it is \[3, 8\]/,
    ],
    [
      "BAD_ARGUMENT",
      alteredFolder({ r: 1e9 }),
      /"r" is 1000000000; it must be a whole number from 1 to 65536/,
    ],
    ["BAD_STATE", alteredFolder({ r: 65_536 }), /it is \[65536, 8\]/],
    [
      "BAD_ARGUMENT",
      alteredFolder({ lora_alpha: -1 }),
      /adapter_config.json: The config of a LoRA adapter: "lora_alpha" is -1/,
    ],
    ["BAD_ARGUMENT", alteredFolder({ peft_type: "IA3" }), /"peft_type" is "IA3"/],
    ["BAD_ARGUMENT", alteredFolder({ use_dora: true }), /"use_dora" is true/],
    ["BAD_ARGUMENT", alteredFolder({ bias: "all" }), /"bias" is "all"/],
    ["BAD_ARGUMENT", alteredFolder({ init_lora_weights: "pissa" }), /others change the base model/],
    ["BAD_ARGUMENT", alteredFolder({ velocity: 3 }), /unknown field "velocity"/],
    ["BAD_ARGUMENT", alteredFolder({ rank_pattern: { "(a+)+$": 4 } }), /rank_pattern maps "\(a\+\)\+\$"/],
    [
      "BAD_ARGUMENT",
      alteredFolder({ modules_to_save: ["../head"] }),
      /adapter_config.json: modulesToSave: no module is called "..\/head"/,
    ],
    [
      "BAD_STATE",
      alteredFolder({ modules_to_save: ["norm"] }),
      /it lacks "base_model.model.model.norm.weight"/,
    ],
    [
      "BAD_STATE",
      alteredFolder({ target_modules: ["q_proj", "k_proj", "v_proj"] }),
      /it lacks .*k_proj.lora_A/,
    ],
    [
      "BAD_STATE",
      alteredFolder({ target_modules: ["q_proj"] }),
      /an adapter for "model.layers.0.self_attn.v_proj", and target_modules of adapter_config.json does not name/,
    ],
    [
      "BAD_STATE",
      alteredFolder({}, ([, ...others]) => others),
      /it lacks "base_model.model.model.layers.0.self_attn.q_proj.lora_A/,
    ],
    ["BAD_STATE", alteredFolder({}, () => []), /it lacks/],
    ["BAD_STATE", alteredFolder({}, renamed("../../etc/passwd")), /it lacks/],
    [
      "BAD_STATE",
      alteredFolder({}, (tensors) => [...tensors, { ...tensors[0]!, name: "__proto__" }]),
      /no layer for "__proto__".*called q_proj/,
    ],
    [
      "BAD_DTYPE",
      alteredFolder({}, ([first, ...others]) => [{ ...first!, dtype: "i32" }, ...others]),
      /has the dtype "I32"/,
    ],
    [
      "BAD_STATE",
      alteredFolder({}, ([first, ...others]) => [{ ...first!, shape: first!.shape.toReversed() }, ...others]),
      /is \[8, 2\]/,
    ],
    ["BAD_FILE", alteredFolder("{"), /adapter_config.json is not JSON/],
    ["BAD_FILE", alteredFolder("[]"), /adapter_config.json: the file must be an object/],
    ["BAD_FILE", join(root, "none"), /can't be read/],
  ];
  const { used } = device.diagnostics().budget;
  for (const [code, folder, message] of faults) rejects(code, () => loadLora(model, folder), message);
  assert.equal(adaptedLayers(model).length, 0);
  assert.equal(device.diagnostics().budget.used, used);
  rejects("NO_DEVICE", () => loadLora(modelFromConfig(llama), faults[0]![1]), /model\.to\(device\)/);
  // Empty fields of newer versions have no effect.
  loadLora(
    model,
    alteredFolder({ eva_config: null, new_feature: false, target_parameters: [], peft_version: "0.21.0" }),
  );
  const ranks = { q_proj: 2 };
  loadLora(
    newLlama(),
    alteredFolder({ r: 64, rank_pattern: { ...ranks, "self_attn.v_proj": 2 }, alpha_pattern: ranks }),
  );
});
