/** The configs of BERT and ViT, which share most fields. */

import { type ActivationName, activationField } from "../activations.js";
import {
  badConfig,
  choice,
  commonRules,
  type Field,
  flag,
  harmless,
  layerCount,
  type ModelConfig,
  only,
  optionalObject,
  optionalProbability,
  optionalSize,
  optionalTexts,
  positive,
  probability,
  type ReadFieldsOptions,
  readFields,
  requireDivides,
  size,
} from "./fields.js";

/** The sizes of an encoder. */
export interface EncoderSizes {
  readonly width: number;
  /** The width inside the feed-forward network. */
  readonly hidden: number;
  readonly layers: number;
  readonly heads: number;
  readonly activation: ActivationName;
  readonly eps: number;
  readonly dropout: number;
  readonly attentionDropout: number;
  /** A bias of the projections to queries, keys and values. */
  readonly qkvBias: boolean;
  /** The number of classes of a classifier. */
  readonly labels: number;
  readonly initializerRange: number;
}

/** The sizes of a `Bert`. */
export interface BertSizes extends EncoderSizes {
  readonly vocabulary: number;
  readonly maxLength: number;
  readonly tokenTypes: number;
  readonly classifierDropout: number;
  /** What follows the encoder: words for masked tokens, classes, or nothing but the pooler. */
  readonly head: "maskedLm" | "classifier" | null;
}

/** The sizes of a `Vit`. */
export interface VitSizes extends EncoderSizes {
  readonly imageSize: readonly [height: number, width: number];
  readonly patchSize: readonly [height: number, width: number];
  readonly channels: number;
  /** False if it returns the states of patches, not classes. */
  readonly hasClassifier: boolean;
}

const shared = {
  ...commonRules,
  is_decoder: only(false),
  architectures: optionalTexts,
  hidden_size: size(768),
  intermediate_size: size(3072),
  num_hidden_layers: layerCount(12),
  num_attention_heads: size(12),
  hidden_act: activationField("gelu"),
  hidden_dropout_prob: probability(0.1),
  attention_probs_dropout_prob: probability(0.1),
  layer_norm_eps: positive(1e-12),
  initializer_range: positive(0.02),
  id2label: optionalObject,
  num_labels: optionalSize(),
  problem_type: choice(["single_label_classification"], "single_label_classification"),
} as const;

const bertFields = {
  ...shared,
  vocab_size: size(30_522),
  max_position_embeddings: size(512),
  type_vocab_size: size(2),
  position_embedding_type: only("absolute"),
  classifier_dropout: optionalProbability,
  // Of a pooler that old files describe, and that all BERTs have.
  pooler_type: harmless,
  pooler_fc_size: harmless,
  pooler_num_attention_heads: harmless,
  pooler_num_fc_layers: harmless,
  pooler_size_per_head: harmless,
  directionality: harmless,
} as const;

const vitFields = {
  ...shared,
  hidden_dropout_prob: probability(0),
  attention_probs_dropout_prob: probability(0),
  image_size: sizePair(224),
  patch_size: sizePair(16),
  num_channels: size(3),
  qkv_bias: flag(true),
  // Of other heads.
  encoder_stride: harmless,
  pooler_output_size: harmless,
  pooler_act: harmless,
} as const;

/** A size of both axes, or of height and width. */
function sizePair(fallback: number): Field<readonly [number, number]> {
  const { parse } = size();
  return {
    parse: (value) => {
      const [height, width] =
        Array.isArray(value) && value.length === 2 ? value.map(parse) : [parse(value), parse(value)];
      return height === undefined || width === undefined ? undefined : [height, width];
    },
    expects: "a whole number from 1 on, or two of them: height and width",
    fallback: [fallback, fallback],
  };
}

/** The architectures of BERT that Holdfast has, and their heads. */
const bertHeads = new Map<string, BertSizes["head"]>([
  ["BertModel", null],
  ["BertForMaskedLM", "maskedLm"],
  ["BertForPreTraining", "maskedLm"],
  ["BertForSequenceClassification", "classifier"],
]);

/** Reads and checks a config of BERT. */
export function readBertConfig(config: ModelConfig, options: ReadFieldsOptions): BertSizes {
  const fields = readFields("bert", bertFields, config, options);
  const head = bertHeads.get(architectureOf("bert", fields.architectures, [...bertHeads.keys()]));
  return {
    ...encoderSizes("bert", fields),
    qkvBias: true,
    vocabulary: fields.vocab_size,
    maxLength: fields.max_position_embeddings,
    tokenTypes: fields.type_vocab_size,
    classifierDropout: fields.classifier_dropout ?? fields.hidden_dropout_prob,
    head: head ?? null,
  };
}

const vitArchitectures = ["ViTModel", "ViTForImageClassification"];

/** Reads and checks a config of ViT. */
export function readVitConfig(config: ModelConfig, options: ReadFieldsOptions): VitSizes {
  const fields = readFields("vit", vitFields, config, options);
  const { image_size: imageSize, patch_size: patchSize } = fields;
  for (const axis of [0, 1] as const)
    requireDivides("vit", imageSize[axis], "image_size", patchSize[axis], "patch_size");
  return {
    ...encoderSizes("vit", fields),
    qkvBias: fields.qkv_bias,
    ...{ imageSize, patchSize },
    channels: fields.num_channels,
    hasClassifier:
      architectureOf("vit", fields.architectures, vitArchitectures) === "ViTForImageClassification",
  };
}

/** The first architecture of a config. Default: the first known one, which has no head. */
function architectureOf(
  model: string,
  architectures: readonly string[] | null,
  known: readonly string[],
): string {
  const [found = known[0] ?? ""] = architectures ?? [];
  if (known.includes(found)) return found;
  throw badConfig(
    model,
    `the architecture ${JSON.stringify(found.slice(0, 60))} is not one of ${known.join(", ")}`,
  );
}

interface SharedFields {
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly hidden_act: ActivationName;
  readonly hidden_dropout_prob: number;
  readonly attention_probs_dropout_prob: number;
  readonly layer_norm_eps: number;
  readonly initializer_range: number;
  readonly id2label: ModelConfig | null;
  readonly num_labels: number | null;
}

function encoderSizes(model: string, fields: SharedFields): Omit<EncoderSizes, "qkvBias"> {
  const { hidden_size: width, num_attention_heads: heads, id2label } = fields;
  requireDivides(model, width, "hidden_size", heads, "num_attention_heads");
  return {
    ...{ width, heads },
    hidden: fields.intermediate_size,
    layers: fields.num_hidden_layers,
    activation: fields.hidden_act,
    eps: fields.layer_norm_eps,
    dropout: fields.hidden_dropout_prob,
    attentionDropout: fields.attention_probs_dropout_prob,
    labels: fields.num_labels ?? Math.max(1, id2label === null ? 2 : Object.keys(id2label).length),
    initializerRange: fields.initializer_range,
  };
}
