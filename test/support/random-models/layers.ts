/** Generates each layer of nn with its own sizes, options and inputs. */

import type { Choices } from "../random-programs/choices.js";
import { moreLayerDrawers } from "./more-layers.js";
import type { LayerStep, ModelInput, ModelStep } from "./program.js";
import { elementsOf, maxElements, randomDivisor, randomSize, type Sizes } from "./sizes.js";

/** The state of a model during its generation. */
export class Sketch {
  readonly inputs: ModelInput[] = [];
  /** The remaining parameter budget. */
  parametersLeft: number;

  constructor(parameters: number) {
    this.parametersLeft = parameters;
  }

  input(options: Omit<ModelInput, "name">): string {
    const name = `x${this.inputs.length}`;
    this.inputs.push({ name, ...options });
    return name;
  }

  floats(sizes: Sizes, hasBatch = true): string {
    return this.input({ sizes, dtype: "float", from: -1.5, to: 1.5, ...(!hasBatch && { hasBatch }) });
  }

  /** Takes parameters from the budget; false, and none taken, if they don't fit. */
  reserve(parameters: number): boolean {
    if (parameters > this.parametersLeft) return false;
    this.parametersLeft -= parameters;
    return true;
  }
}

/** A layer and the sizes of its result; undefined if the layer does not fit. */
export type GeneratedLayer = { readonly step: ModelStep; readonly sizes: Sizes } | undefined;
export type LayerDrawer = (sketch: Sketch, choices: Choices, sizes: Sizes) => GeneratedLayer;

const layer = (name: string, args: readonly unknown[] = [], more: Partial<LayerStep> = {}): LayerStep => ({
  kind: "layer",
  layer: name,
  args,
  ...more,
});

/** The last choice is no options: then the constructor's defaults hold. */
const optional = (options: Readonly<Record<string, unknown>>): readonly unknown[] =>
  Object.keys(options).length > 0 ? [options] : [];

const same =
  (
    name: string,
    randomArgs: (choices: Choices, sizes: Sizes) => readonly unknown[] = () => [],
  ): LayerDrawer =>
  (_, choices, sizes) => ({ step: layer(name, randomArgs(choices, sizes)), sizes });

const someOf = <T>(choices: Choices, name: string, values: readonly T[]): Record<string, T> => {
  const value = choices.of([undefined, ...values]);
  return value === undefined ? {} : { [name]: value };
};

function norm(name: "LayerNorm" | "RMSNorm"): LayerDrawer {
  return (sketch, choices, sizes) => {
    const shape = sizes.slice(-1 - choices.below(sizes.length));
    const options = {
      eps: choices.of([1e-3, 1e-2, 0.1]),
      ...someOf(choices, "elementwiseAffine", [false]),
      ...(name === "LayerNorm" && someOf(choices, "bias", [false])),
    };
    if (!sketch.reserve(2 * elementsOf(shape))) return undefined;
    return { step: layer(name, [shape.length === 1 ? shape[0] : shape, options]), sizes };
  };
}

/** Kernel, stride, padding and dilation along one axis, and the resulting size. */
function randomWindow(choices: Choices, size: number, hasDilation: boolean) {
  const kernel = 1 + choices.below(Math.min(size, 5));
  const padding = choices.below(1 + Math.floor(kernel / 2));
  const dilation = hasDilation && 2 * (kernel - 1) + 1 <= size ? choices.of([1, 1, 2]) : 1;
  const stride = choices.of([1, 2, 3]);
  const left = Math.floor((size + 2 * padding - dilation * (kernel - 1) - 1) / stride) + 1;
  return { kernel, padding, dilation, stride, left };
}

function windows(choices: Choices, axes: Sizes, hasDilation: boolean) {
  const windows = axes.map((size) => randomWindow(choices, size, hasDilation));
  const all = (name: "kernel" | "padding" | "dilation" | "stride") => windows.map((window) => window[name]);
  return {
    kernel: all("kernel"),
    options: {
      ...{ stride: all("stride"), padding: all("padding") },
      ...(hasDilation && { dilation: all("dilation") }),
    },
    left: windows.map(({ left }) => left),
  };
}

function convolution(name: "Conv1d" | "Conv2d", axes: number): LayerDrawer {
  return (sketch, choices, sizes) => {
    if (sizes.length !== axes + 1) return undefined;
    const [channels = 1, ...rest] = sizes;
    const { kernel, options, left } = windows(choices, rest, true);
    const groups = randomDivisor(choices, channels, 4);
    const out = groups * randomSize(choices, Math.floor(maxElements / elementsOf(left) / groups));
    if (elementsOf(left) * out > maxElements) return undefined;
    if (!sketch.reserve((out * channels * elementsOf(kernel)) / groups + out)) return undefined;
    const args = [channels, out, kernel, { ...options, groups, ...someOf(choices, "bias", [false]) }];
    return { step: layer(name, args), sizes: [out, ...left] };
  };
}

function pool(name: string, axes: number): LayerDrawer {
  return (_, choices, sizes) => {
    if (sizes.length !== axes + 1) return undefined;
    const [channels = 1, ...rest] = sizes;
    const { kernel, options, left } = windows(choices, rest, name.startsWith("Max"));
    return { step: layer(name, [kernel, options]), sizes: [channels, ...left] };
  };
}

/** More rows make scores that dominate everything else. */
const maxRows = 40;

function randomHeads(choices: Choices, width: number): number {
  return randomDivisor(choices, width, 16);
}

/** An attention mask as an input: additive or boolean. */
function randomMask(sketch: Sketch, choices: Choices, rows: number, columns: number): string | undefined {
  const how = choices.below(6);
  if (how === 4) return sketch.floats([rows, columns], false);
  if (how !== 5) return undefined;
  return sketch.input({ sizes: [rows, columns], dtype: "bool", from: 0, to: 1, hasBatch: false });
}

const axisOf = (choices: Choices, sizes: Sizes): number =>
  choices.of([-1, sizes.length, 1 - choices.below(sizes.length)]);

/** By the exported name; containers and losses are generated elsewhere. */
export const layerDrawers: Readonly<Record<string, LayerDrawer>> = {
  Linear(sketch, choices, sizes) {
    const width = sizes.at(-1) ?? 1;
    const rows = elementsOf(sizes) / width;
    const out = randomSize(
      choices,
      Math.min(maxElements / rows, Math.floor(sketch.parametersLeft / (width + 1))),
    );
    if (!sketch.reserve(width * out + out)) return undefined;
    const args = [width, out, ...optional(someOf(choices, "bias", [false]))];
    return { step: layer("Linear", args), sizes: [...sizes.slice(0, -1), out] };
  },
  LayerNorm: norm("LayerNorm"),
  RMSNorm: norm("RMSNorm"),
  ReLU: same("ReLU"),
  Tanh: same("Tanh"),
  Sigmoid: same("Sigmoid"),
  SiLU: same("SiLU"),
  Softplus: same("Softplus"),
  LeakyReLU: same("LeakyReLU", (choices) => choices.of([[], [0.2], [1.5], [0]])),
  GELU: same("GELU", (choices) => choices.of([[], [{ approximate: "tanh" }]])),
  Softmax: same("Softmax", (choices, sizes) => [axisOf(choices, sizes)]),
  LogSoftmax: same("LogSoftmax", (choices, sizes) => [axisOf(choices, sizes)]),
  Dropout: same("Dropout", (choices) => [choices.of([0.1, 0.5, 0.25, 0, 0.9])]),
  Flatten(_, choices, sizes) {
    if (sizes.length < 2) return undefined;
    if (sizes.length === 2 || choices.isOneIn(2))
      return { step: layer("Flatten"), sizes: [elementsOf(sizes)] };
    const [channels = 1, ...rest] = sizes;
    return { step: layer("Flatten", [2, -1]), sizes: [channels, elementsOf(rest)] };
  },
  /** Of a separate input, whose rows are summed. */
  Embedding(sketch, choices, sizes) {
    const width = sizes.at(-1) ?? 1;
    const count = randomSize(choices, Math.floor(sketch.parametersLeft / width));
    if (!sketch.reserve(count * width)) return undefined;
    return withInput(sketch, choices, sizes, embedding(choices, count, width), count);
  },
  MultiheadAttention(sketch, choices, sizes) {
    const [rows = 1, width = 1] = sizes;
    if (sizes.length !== 2 || rows > maxRows || !sketch.reserve(4 * width * width + 4 * width))
      return undefined;
    const options = {
      ...someOf(choices, "bias", [false]),
      ...someOf(choices, "dropout", [0.1, 0.5]),
      ...someOf(choices, "batchFirst", [false]),
    };
    const args = [width, randomHeads(choices, width), ...optional(options)];
    if ("batchFirst" in options) return { step: layer("MultiheadAttention", args), sizes };
    const columns = choices.isOneIn(3) ? randomSize(choices, maxRows) : undefined;
    const keys = columns === undefined ? undefined : sketch.floats([columns, width]);
    const mask = randomMask(sketch, choices, rows, columns ?? rows);
    const isCausal = mask === undefined && keys === undefined && choices.isOneIn(3);
    const more = { ...(keys && { keys }), ...(mask && { mask }), ...(isCausal && { isCausal }) };
    return { step: layer("MultiheadAttention", args, more), sizes };
  },
  TransformerEncoderLayer(sketch, choices, sizes) {
    const [rows = 1, width = 1] = sizes;
    if (sizes.length !== 2 || rows > maxRows) return undefined;
    const fixedCount = 4 * width * width + 9 * width;
    const dimFeedforward = randomSize(
      choices,
      Math.floor((sketch.parametersLeft - fixedCount) / (2 * width + 1)),
    );
    if (!sketch.reserve(fixedCount + dimFeedforward * (2 * width + 1))) return undefined;
    const options = {
      ...{ dimFeedforward, dropout: choices.of([0, 0.1, 0.5]), layerNormEps: 1e-2 },
      ...someOf(choices, "activation", ["gelu", "relu"]),
      ...someOf(choices, "normFirst", [true]),
      ...someOf(choices, "bias", [false]),
      ...someOf(choices, "batchFirst", [false]),
    };
    const isMasked = !("batchFirst" in options);
    const mask = isMasked ? randomMask(sketch, choices, rows, rows) : undefined;
    const isCausal = isMasked && mask === undefined && choices.isOneIn(3);
    const more = { ...(mask && { mask }), ...(isCausal && { isCausal }) };
    return {
      step: layer("TransformerEncoderLayer", [width, randomHeads(choices, width), options], more),
      sizes,
    };
  },
  Conv1d: convolution("Conv1d", 1),
  Conv2d: convolution("Conv2d", 2),
  MaxPool1d: pool("MaxPool1d", 1),
  MaxPool2d: pool("MaxPool2d", 2),
  AvgPool1d: pool("AvgPool1d", 1),
  AvgPool2d: pool("AvgPool2d", 2),
  ...moreLayerDrawers,
};

export function embedding(choices: Choices, count: number, width: number): LayerStep {
  return layer("Embedding", [count, width, ...optional(someOf(choices, "paddingIdx", [0, count - 1]))]);
}

function withInput(
  sketch: Sketch,
  choices: Choices,
  sizes: Sizes,
  step: LayerStep,
  count: number,
): GeneratedLayer {
  const input = sketch.input({ sizes: sizes.slice(0, -1), dtype: "i32", from: 0, to: count - 1 });
  return { step: { kind: "join", how: choices.of(["add", "mul"] as const), input, steps: [step] }, sizes };
}
