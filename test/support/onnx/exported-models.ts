/** Models of the examples, of test/programs and of the library, with inputs of two sizes, for exports to ONNX. */

import {
  applyLora,
  crossasset,
  type Device,
  manualSeed,
  modelFromConfig,
  type models,
  nn,
  noGrad,
  rand,
  randn,
  type Tensor,
  tensor,
} from "holdfast";
import { CharGpt, small } from "../../../examples/char-gpt.js";
import { CharacterModel } from "../../../examples/characters.js";
import { makeModel as makeDigits } from "../../../examples/digits.js";
import { RingModel } from "../../programs/custom-parts.js";
import { Denoiser } from "../../programs/diffusion.js";
import { Classifier as FineTuned } from "../../programs/fine-tune.js";
import { Gpt } from "../../programs/gpt.js";
import { Classifier as LstmClassifier } from "../../programs/lstm.js";
import { makeConvnet } from "../../programs/residual-convnet.js";
import { Churn } from "../../programs/tabular.js";
import { Vae } from "../../programs/vae.js";
import type { Comparison } from "./compare.js";

type ModelToExport = Omit<Comparison, "name">;

/** Whole numbers below `count`. */
function wholes(shape: readonly [number, number], count: number, dtype: "i32" | "i64" = "i32"): Tensor {
  const rows = Array.from({ length: shape[0] }, (_, row) =>
    Array.from({ length: shape[1] }, (_, column) => (7 * row + 5 * column + row * column) % count),
  );
  return tensor(rows, { dtype });
}

const text = { dynamicAxes: { ids: { 0: "batch", 1: "sequence" } } } as const;
/** Ids of two sizes, as models of text take them. */
const texts = (count: number, dtype?: "i64") =>
  [{ ids: wholes([2, 5], count, dtype) }, { ids: wholes([3, 8], count, dtype) }] as const;

/** Values of a shape with two numbers of rows. */
const rows = (...shape: number[]) => [{ x: randn([2, ...shape]) }, { x: randn([5, ...shape]) }] as const;

/** Weights and statistics that are not those of a fresh model. */
export function used<Model extends nn.Module>(model: Model, device: Device): Model {
  model.to(device);
  device.step(() =>
    noGrad(() => {
      for (const parameter of model.parameters()) parameter.add_(randn(parameter.shape).mul(0.1));
    }),
  );
  return model;
}

const decoder = {
  vocab_size: 50,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const llamas: Readonly<Record<string, models.ModelConfig>> = {
  llama: {
    ...{ model_type: "llama", ...decoder, num_key_value_heads: 2 },
    rope_scaling: {
      ...{ rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 16,
    },
  },
  mistral: { model_type: "mistral", ...decoder, num_key_value_heads: 2, sliding_window: 3 },
  qwen2: { model_type: "qwen2", ...decoder, num_key_value_heads: 4, tie_word_embeddings: true },
  qwen3: { model_type: "qwen3", ...decoder, num_key_value_heads: 2, head_dim: 12 },
};

/** Encodes by pools with indices, and decodes by their inverse. */
class Unpooled extends nn.Module {
  readonly first = new nn.Conv2d(2, 4, 3, { padding: 1 });
  readonly last = new nn.ConvTranspose2d(4, 1, 3, { padding: 1 });
  readonly pool = new nn.MaxPool2d(2, { returnIndices: true, ceilMode: true });
  readonly unpool = new nn.MaxUnpool2d(2);

  forward(x: Tensor): Tensor {
    const wide = this.first.forward(x).relu();
    const { values, indices } = this.pool.forward(wide);
    return this.last.forward(this.unpool.forward(values, indices, wide.shape));
  }
}

/** Samples an image by a transformation that depends on it. */
class SpatialTransformer extends nn.Module {
  readonly place = new nn.Sequential(new nn.Flatten(), new nn.Linear(64, 6));

  forward(x: Tensor): Tensor {
    const theta = this.place.forward(x).mul(0.1).reshape([-1, 2, 3]);
    const [batch = 1] = x.shape;
    return nn.functional.gridSample(x, nn.functional.affineGrid(theta, [batch, 1, 8, 8], {}), {});
  }
}

/** A bidirectional GRU on top of an LSTM of two layers. */
class Tagger extends nn.Module {
  readonly lstm = new nn.LSTM(3, 5, { numLayers: 2, batchFirst: true });
  readonly gru = new nn.GRU(5, 4, { bidirectional: true, batchFirst: true });
  readonly head = new nn.Linear(8, 3);

  forward(x: Tensor): Tensor {
    const [states] = this.lstm.forward(x);
    const [tags] = this.gru.forward(states);
    return this.head.forward(tags);
  }
}

/** With adapters that are not merged, and whose products are not 0. */
function adapted(config: models.ModelConfig, device: Device): models.PretrainedModel {
  const model = applyLora(modelFromConfig(config).to(device), { rank: 3, alpha: 6, targets: "all-linear" });
  return used(model, device);
}

const gpt2 = { model_type: "gpt2", vocab_size: 50, n_positions: 64, n_embd: 32, n_layer: 2, n_head: 4 };
const bert = { model_type: "bert", ...decoder, max_position_embeddings: 32 };

/** By name. Each makes its model and inputs on a device. */
export const exportedModels: Readonly<Record<string, (device: Device) => ModelToExport>> = {
  "linear regression": (device) => ({ model: used(new nn.Linear(3, 1), device), feeds: rows(3) }),
  spirals: (device) => ({
    model: used(
      new nn.Sequential(
        ...[new nn.Linear(2, 64), new nn.Tanh(), new nn.Linear(64, 64), new nn.Tanh(), new nn.Linear(64, 2)],
      ),
      device,
    ),
    feeds: rows(2),
  }),
  digits: (device) => ({ model: used(makeDigits(), device), feeds: rows(1, 12, 12) }),
  characters: (device) => ({
    ...{ model: used(new CharacterModel(20, 32), device), feeds: texts(20), options: text },
  }),
  "char-gpt": (device) => ({
    ...{ model: used(new CharGpt(30, { ...small, dropout: 0.2 }), device), feeds: texts(30), options: text },
  }),
  crossasset: (device) => ({
    model: used(
      new crossasset.CrossAsset({ sources: 3, features: 7, width: 16, heads: 2, layers: 2 }),
      device,
    ),
    feeds: rows(3, 7),
  }),
  "crossasset with norms of queries": (device) => ({
    model: used(
      new crossasset.CrossAsset({ sources: 3, features: 7, width: 16, heads: 2, layers: 2, qkNorm: true }),
      device,
    ),
    feeds: rows(3, 7),
  }),
  "residual convnet": (device) => {
    const model = used(makeConvnet(), device);
    // Running statistics.
    device.step(() => model.forward(randn([16, 1, 16, 16])));
    return { model, feeds: rows(1, 16, 16) };
  },
  "custom parts": (device) => ({ model: used(new RingModel(), device), feeds: rows(2) }),
  denoiser: (device) => ({
    model: used(new Denoiser(), device),
    feeds: [
      { points: randn([2, 2]), level: wholes([1, 2], 40).reshape([2]) },
      { points: randn([5, 2]), level: wholes([1, 5], 40).reshape([5]) },
    ],
  }),
  "fine-tuned classifier": (device) => ({ model: used(new FineTuned(3), device), feeds: rows(16) }),
  "gpt of test/programs": (device) => ({ model: used(new Gpt(), device), feeds: texts(11), options: text }),
  lstm: (device) => ({
    model: used(new LstmClassifier(), device),
    feeds: [
      { x: randn([2, 12, 2]), lengths: tensor([7, 12], { dtype: "i32" }) },
      { x: randn([3, 12, 2]), lengths: tensor([12, 6, 9], { dtype: "i32" }) },
    ],
  }),
  tabular: (device) => ({
    model: used(new Churn(), device),
    feeds: [
      { numbers: randn([2, 2]), categories: wholes([2, 2], 2) },
      { numbers: randn([5, 2]), categories: wholes([5, 2], 2) },
    ],
  }),
  vae: (device) => ({ model: used(new Vae(), device).decoder, feeds: rows(2) }),
  gpt2: (device) => ({ model: used(modelFromConfig(gpt2), device), feeds: texts(50, "i64"), options: text }),
  ...Object.fromEntries(
    Object.entries(llamas).map(([name, config]) => [
      name,
      (device: Device): ModelToExport => ({
        ...{ model: used(modelFromConfig(config), device), feeds: texts(50, "i64"), options: text },
      }),
    ]),
  ),
  "llama with LoRA": (device) => ({
    ...{ model: adapted(llamas["llama"]!, device), feeds: texts(50, "i64"), options: text },
  }),
  "gpt2 with LoRA": (device) => ({
    ...{ model: adapted(gpt2, device), feeds: texts(50, "i64"), options: text },
  }),
  "pools with indices": (device) => ({ model: used(new Unpooled(), device), feeds: rows(2, 7, 9) }),
  "spatial transformer": (device) => ({
    model: used(new SpatialTransformer(), device),
    feeds: rows(1, 8, 8),
  }),
  "recurrent layers": (device) => ({ model: used(new Tagger(), device), feeds: rows(6, 3) }),
  "sequence to sequence": (device) => {
    const options = {
      heads: 2,
      numEncoderLayers: 1,
      numDecoderLayers: 1,
      dimFeedforward: 12,
      batchFirst: true,
    };
    const model = used(new nn.Transformer(8, options), device);
    const feed = (batch: number) => ({ source: randn([batch, 5, 8]), target: randn([batch, 4, 8]) });
    return { model, feeds: [feed(2), feed(3)] };
  },
  bert: (device) => {
    const model = used(modelFromConfig(bert), device).eval() as models.Bert;
    const axes = { 0: "batch", 1: "sequence" };
    const feed = (size: readonly [number, number]) => ({
      ...{ ids: wholes(size, 50, "i64"), mask: wholes(size, 3, "i64"), types: wholes(size, 2, "i64") },
    });
    return {
      model: (ids, attentionMask, tokenTypes) =>
        model.forward(ids!, { attentionMask: attentionMask!, tokenTypes: tokenTypes! }),
      feeds: [feed([2, 5]), feed([3, 8])],
      options: { dynamicAxes: { ids: axes, mask: axes, types: axes } },
    };
  },
  vit: (device) => {
    const { vocab_size: _, ...encoder } = decoder;
    const sizes = { ...encoder, image_size: 16, patch_size: 4, num_labels: 5 };
    const config = { model_type: "vit", ...sizes, architectures: ["ViTForImageClassification"] };
    const feeds = [{ pixels: rand([1, 3, 16, 16]) }, { pixels: rand([4, 3, 16, 16]) }] as const;
    return { model: used(modelFromConfig(config), device), feeds };
  },
};

/** A model of the list, always with the same numbers. */
export function makeExported(name: string, device: Device): Comparison {
  manualSeed(7);
  const made = exportedModels[name]!(device);
  return { name, ...made };
}
