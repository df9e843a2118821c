/**
 * Rotary embeddings: positions as rotations of queries and keys, with the scalings of Hugging Face's configs. Angles are computed from the
 * positions of the call, in f32, so there is no table and no longest position.
 */

import { HoldfastError } from "../errors/index.js";
import { Buffer, Module } from "../nn/index.js";
import { cat, type Tensor } from "../tensor/index.js";
import {
  badConfig,
  choice,
  flag,
  type ModelConfig,
  optionalPositive,
  positive,
  readFields,
  size,
} from "./configs/fields.js";

/** How the frequencies are scaled for longer texts than the model was first trained on. */
export type RotaryScaling =
  | { readonly type: "default" }
  | { readonly type: "linear"; readonly factor: number }
  | { readonly type: "dynamic"; readonly factor: number }
  | {
      readonly type: "llama3";
      readonly factor: number;
      readonly lowFrequencyFactor: number;
      readonly highFrequencyFactor: number;
      readonly originalLength: number;
    }
  | {
      readonly type: "yarn";
      readonly factor: number;
      readonly originalLength: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      readonly isTruncated: boolean;
      /** Multiplies cosines and sines. */
      readonly attentionFactor: number;
    };

/** The rotary embedding of a model. */
export interface RotarySizes {
  /** The width of a head: even. */
  readonly width: number;
  readonly theta: number;
  readonly scaling: RotaryScaling;
  /** The maximum position + 1 of a model with dynamic scaling. */
  readonly maxLength: number;
}

const scalings = ["default", "linear", "dynamic", "llama3", "yarn"] as const;

/**
 * Reads `rope_scaling` and `rope_theta`, or `rope_parameters` of newer files, which has both. `maxLength` is
 * `max_position_embeddings`.
 */
export function readRotary(
  model: string,
  config: {
    readonly rope_theta: number;
    readonly rope_scaling: ModelConfig | null;
    readonly rope_parameters: ModelConfig | null;
  },
  maxLength: number,
): Pick<RotarySizes, "theta" | "scaling"> {
  const [name, found] = config.rope_parameters
    ? (["rope_parameters", config.rope_parameters] as const)
    : (["rope_scaling", config.rope_scaling ?? {}] as const);
  const fields = {
    // Older files have `type`.
    rope_type: choice(scalings, scalings.find((type) => type === found["type"]) ?? "default"),
    type: choice(scalings, "default"),
    rope_theta: positive(config.rope_theta),
    factor: positive(1),
    original_max_position_embeddings: size(maxLength),
    low_freq_factor: optionalPositive(),
    high_freq_factor: optionalPositive(),
    attention_factor: optionalPositive(),
    beta_fast: positive(32),
    beta_slow: positive(1),
    mscale: optionalPositive(),
    mscale_all_dim: optionalPositive(),
    truncate: flag(true),
    partial_rotary_factor: {
      ...positive(1),
      parse: (value: unknown) => (value === 1 ? 1 : undefined),
      expects: "1",
    },
    finetuned: flag(false),
  } as const;
  const values = readFields(model, fields, found, { path: `${name}.` });
  return { theta: values.rope_theta, scaling: scalingOf(model, name, values) };
}

interface ScalingFields {
  readonly rope_type: (typeof scalings)[number];
  readonly factor: number;
  readonly original_max_position_embeddings: number;
  readonly low_freq_factor: number | null;
  readonly high_freq_factor: number | null;
  readonly attention_factor: number | null;
  readonly beta_fast: number;
  readonly beta_slow: number;
  readonly mscale: number | null;
  readonly mscale_all_dim: number | null;
  readonly truncate: boolean;
}

function scalingOf(model: string, name: string, fields: ScalingFields): RotaryScaling {
  const { rope_type: type, factor, original_max_position_embeddings: originalLength } = fields;
  if (type === "default") return { type };
  if (type === "linear" || type === "dynamic") return { type, factor };
  if (type === "llama3") {
    const { low_freq_factor: lowFrequencyFactor, high_freq_factor: highFrequencyFactor } = fields;
    if (
      lowFrequencyFactor !== null &&
      highFrequencyFactor !== null &&
      lowFrequencyFactor < highFrequencyFactor
    )
      return { type, factor, lowFrequencyFactor, highFrequencyFactor, originalLength };
    throw badConfig(model, `${name} of llama3 needs low_freq_factor, and a larger high_freq_factor`);
  }
  const { mscale, mscale_all_dim: mscaleAll } = fields;
  const scaleOf = (by: number): number => (factor <= 1 ? 1 : 0.1 * by * Math.log(factor) + 1);
  const attentionFactor =
    fields.attention_factor ??
    (mscale !== null && mscaleAll !== null ? scaleOf(mscale) / scaleOf(mscaleAll) : scaleOf(1));
  return {
    ...{ type, factor, originalLength, attentionFactor },
    ...{ betaFast: fields.beta_fast, betaSlow: fields.beta_slow, isTruncated: fields.truncate },
  };
}

/** The angle per position of each pair of a head, [width / 2]. Rounded to f32 where PyTorch rounds. */
export function rotaryFrequencies({
  width,
  theta,
  scaling,
}: Omit<RotarySizes, "maxLength">): readonly number[] {
  const half = width / 2;
  const { fround } = Math;
  const plain = Array.from({ length: half }, (_, pair) =>
    fround(1 / fround(theta ** fround((2 * pair) / width))),
  );
  if (scaling.type === "linear") return plain.map((frequency) => fround(frequency / scaling.factor));
  if (scaling.type === "llama3") {
    const { factor, lowFrequencyFactor: low, highFrequencyFactor: high, originalLength } = scaling;
    return plain.map((frequency) => {
      const turns = (originalLength * frequency) / (2 * Math.PI);
      if (turns < low) return frequency / factor;
      if (turns > high) return frequency;
      const share = (turns - low) / (high - low);
      return ((1 - share) * frequency) / factor + share * frequency;
    });
  }
  if (scaling.type === "yarn") {
    const { factor, originalLength, betaFast, betaSlow, isTruncated } = scaling;
    const pairAt = (rotations: number): number =>
      (width * Math.log(originalLength / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
    const [first, last] = [pairAt(betaFast), pairAt(betaSlow)];
    const low = Math.max(isTruncated ? Math.floor(first) : first, 0);
    const high = Math.min(isTruncated ? Math.ceil(last) : last, width - 1);
    const ramp = (pair: number): number =>
      Math.min(1, Math.max(0, (pair - low) / (low === high ? 0.001 : high - low)));
    return plain.map((frequency, pair) => (frequency / factor) * ramp(pair) + frequency * (1 - ramp(pair)));
  }
  return plain;
}

/** Cosines and sines of the angles, [B or 1, T, 1, width / 2] in f32. */
export interface Rotation {
  readonly cosines: Tensor;
  readonly sines: Tensor;
}

/** The rotations of positions. All layers of a model share them. */
export class Rotary extends Module {
  /** [width / 2] */
  readonly frequencies: Buffer;
  readonly attentionFactor: number;
  /** With dynamic scaling, longer texts would need other frequencies. */
  readonly maxLength: number | null;

  constructor(sizes: RotarySizes) {
    super();
    const { width, scaling, maxLength } = sizes;
    this.frequencies = new Buffer([width / 2], () => rotaryFrequencies(sizes), {
      persistent: false,
      staysF32: true,
    });
    this.attentionFactor = scaling.type === "yarn" ? scaling.attentionFactor : 1;
    this.maxLength = scaling.type === "dynamic" ? maxLength : null;
  }

  /** Positions [B or 1, T] to rotations. `length`: the positions of the longest text. */
  forward(positions: Tensor, length: number): Rotation {
    if (this.maxLength !== null && length > this.maxLength) {
      throw new HoldfastError(
        "UNSUPPORTED",
        `${length} positions: with "dynamic" rotary scaling, Holdfast supports max_position_embeddings, ${this.maxLength}. Use shorter texts, ` +
          'or another scaling, such as "yarn".',
        { numbers: { length, maxLength: this.maxLength } },
      );
    }
    const angles = positions.to("f32").unsqueeze(-1).unsqueeze(-1).mul(this.frequencies); // [B, T, 1, width / 2]
    const [cosines, sines] = [angles.cos(), angles.sin()];
    const { attentionFactor } = this;
    if (attentionFactor === 1) return { cosines, sines };
    return { cosines: cosines.mul(attentionFactor), sines: sines.mul(attentionFactor) };
  }
}

/** Rotates the pairs (i, i + width / 2) of heads [B, T, H, width]. */
export function rotate(x: Tensor, { cosines, sines }: Rotation): Tensor {
  const half = (x.shape.at(-1) ?? 0) / 2;
  const [first, second] = [x.narrow(-1, 0, half), x.narrow(-1, half, half)];
  return cat([first.mul(cosines).sub(second.mul(sines)), second.mul(cosines).add(first.mul(sines))], -1).to(
    x.dtype,
  );
}
