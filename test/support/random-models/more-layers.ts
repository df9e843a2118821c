/** Generates activations, norms over channels, borders, pools to a size, transposed convolutions and layers that rearrange. */

import type { Choices } from "../random-programs/choices.js";
import type { GeneratedLayer, LayerDrawer } from "./layers.js";
import type { LayerStep } from "./program.js";
import { elementsOf, maxElements, randomDivisor, type Sizes } from "./sizes.js";

type Arguments = readonly unknown[];

const layer = (name: string, args: Arguments = []): LayerStep => ({ kind: "layer", layer: name, args });

/** A layer that keeps the sizes of values with so many axes; default: any. */
const keepsSizes =
  (
    name: string,
    args: (choices: Choices, sizes: Sizes) => Arguments = () => [],
    { axes, parameters = () => 0 }: { axes?: number; parameters?: (sizes: Sizes) => number } = {},
  ): LayerDrawer =>
  (sketch, choices, sizes) =>
    (axes !== undefined && sizes.length !== axes) || !sketch.reserve(parameters(sizes))
      ? undefined
      : { step: layer(name, args(choices, sizes)), sizes };

const oneOf =
  (...values: readonly Arguments[]) =>
  (choices: Choices): Arguments =>
    choices.of(values);

/** More values per channel than one, whatever the batch: one has no spread. */
const channelNorm =
  (name: string, axes: number, args: (choices: Choices, channels: number) => Arguments): LayerDrawer =>
  (sketch, choices, sizes) => {
    const [channels = 1, ...rest] = sizes;
    if (sizes.length !== axes + 1 || elementsOf(rest) < 2 || !sketch.reserve(2 * channels)) return undefined;
    return { step: layer(name, args(choices, channels)), sizes };
  };

/** With a small eps, equal elements would be magnified rounding errors. */
const eps = 0.1;
const features = (choices: Choices, channels: number): Arguments => [
  channels,
  { eps, ...choices.of([{}, { affine: false }, { momentum: 0.3 }]) },
];

const padded =
  (name: string, axes: number, more: Arguments = []): LayerDrawer =>
  (_, choices, sizes) => {
    const [channels = 1, ...rest] = sizes;
    if (sizes.length !== axes + 1) return undefined;
    // From the last axis to the first, before and after; less than any size.
    const widths = rest
      .toReversed()
      .flatMap((size) => [choices.below(Math.min(size, 3)), choices.below(Math.min(size, 3))]);
    const sum = (axis: number): number => (widths[2 * axis] ?? 0) + (widths[2 * axis + 1] ?? 0);
    const left = rest.map((size, index) => size + sum(axes - 1 - index));
    if (elementsOf(left) * channels > maxElements) return undefined;
    return { step: layer(name, [widths, ...more]), sizes: [channels, ...left] };
  };

const toSize =
  (name: string, axes: number): LayerDrawer =>
  (_, choices, sizes) => {
    const [channels = 1, ...rest] = sizes;
    if (sizes.length !== axes + 1) return undefined;
    const left = rest.map((size) => 1 + choices.below(Math.min(size, 4)));
    return { step: layer(name, [axes === 1 ? left[0] : left]), sizes: [channels, ...left] };
  };

const lpPool =
  (name: string, axes: number): LayerDrawer =>
  (_, choices, sizes) => {
    const [channels = 1, ...rest] = sizes;
    if (sizes.length !== axes + 1) return undefined;
    const kernel = rest.map((size) => 1 + choices.below(Math.min(size, 3)));
    const left = rest.map((size, axis) => Math.floor(size / (kernel[axis] ?? 1)));
    return { step: layer(name, [2, axes === 1 ? kernel[0] : kernel]), sizes: [channels, ...left] };
  };

const transposed =
  (name: string, axes: number): LayerDrawer =>
  (sketch, choices, sizes) => {
    const [channels = 1, ...rest] = sizes;
    if (sizes.length !== axes + 1) return undefined;
    const [stride, kernel, out] = [1 + choices.below(2), 1 + choices.below(3), 1 + choices.below(4)];
    const left = rest.map((size) => (size - 1) * stride + kernel);
    if (elementsOf(left) * out > maxElements || !sketch.reserve(channels * out * kernel ** axes + out))
      return undefined;
    return { step: layer(name, [channels, out, rest.map(() => kernel), { stride }]), sizes: [out, ...left] };
  };

/** By the exported name. */
export const moreLayerDrawers: Readonly<Record<string, LayerDrawer>> = {
  ...Object.fromEntries(
    [
      "SELU",
      "Mish",
      "LogSigmoid",
      "Softsign",
      "Tanhshrink",
      "ReLU6",
      "Hardswish",
      "Hardsigmoid",
      "Identity",
      "RReLU",
    ].map((name) => [name, keepsSizes(name)]),
  ),
  ELU: keepsSizes("ELU", oneOf([], [0.5])),
  CELU: keepsSizes("CELU", oneOf([], [0.5])),
  Hardtanh: keepsSizes("Hardtanh", oneOf([], [-0.5, 0.75])),
  Hardshrink: keepsSizes("Hardshrink", oneOf([], [0.2])),
  Softshrink: keepsSizes("Softshrink", oneOf([], [0.2])),
  Threshold: keepsSizes("Threshold", oneOf([0.1, -1], [0, 0.5])),
  Softmin: keepsSizes("Softmin", oneOf([-1], [1])),
  Softmax2d: keepsSizes("Softmax2d", undefined, { axes: 3 }),
  PReLU: keepsSizes("PReLU", (choices, sizes) => choices.of([[], [sizes[0]]]), {
    parameters: ([first = 1]) => first,
  }),
  AlphaDropout: keepsSizes("AlphaDropout", oneOf([], [0.1])),
  FeatureAlphaDropout: keepsSizes("FeatureAlphaDropout", oneOf([], [0.1]), { axes: 2 }),
  Dropout1d: keepsSizes("Dropout1d", oneOf([], [0.1]), { axes: 2 }),
  Dropout2d: keepsSizes("Dropout2d", oneOf([], [0.1]), { axes: 3 }),
  LocalResponseNorm: keepsSizes("LocalResponseNorm", oneOf([3], [5]), { axes: 2 }),
  BatchNorm1d: channelNorm("BatchNorm1d", 1, features),
  BatchNorm2d: channelNorm("BatchNorm2d", 2, features),
  InstanceNorm1d: channelNorm("InstanceNorm1d", 1, (choices, channels) => [
    channels,
    { eps, affine: choices.isOneIn(2) },
  ]),
  InstanceNorm2d: channelNorm("InstanceNorm2d", 2, (choices, channels) => [
    channels,
    { eps, affine: choices.isOneIn(2) },
  ]),
  GroupNorm: channelNorm("GroupNorm", 1, (choices, channels) => [
    randomDivisor(choices, channels, 4),
    channels,
    { eps },
  ]),
  ...Object.fromEntries(
    ["Zero", "Reflection", "Replication", "Circular"].flatMap((name) =>
      [1, 2].map((axes) => [`${name}Pad${axes}d`, padded(`${name}Pad${axes}d`, axes)]),
    ),
  ),
  ConstantPad1d: padded("ConstantPad1d", 1, [0.75]),
  ConstantPad2d: padded("ConstantPad2d", 2, [-0.5]),
  ...Object.fromEntries(
    ["AdaptiveAvgPool", "AdaptiveMaxPool"].flatMap((name) =>
      [1, 2].map((axes) => [`${name}${axes}d`, toSize(`${name}${axes}d`, axes)]),
    ),
  ),
  LPPool1d: lpPool("LPPool1d", 1),
  LPPool2d: lpPool("LPPool2d", 2),
  ConvTranspose1d: transposed("ConvTranspose1d", 1),
  ConvTranspose2d: transposed("ConvTranspose2d", 2),
  GLU(_, __, sizes) {
    const width = sizes.at(-1) ?? 1;
    return width % 2 === 0 ? { step: layer("GLU"), sizes: [...sizes.slice(0, -1), width / 2] } : undefined;
  },
  Unflatten(_, choices, sizes) {
    const [first = 1, ...rest] = sizes;
    if (sizes.length > 2) return undefined;
    const divisor = randomDivisor(choices, first, 8);
    return {
      step: layer("Unflatten", [1, [divisor, first / divisor]]),
      sizes: [divisor, first / divisor, ...rest],
    };
  },
  ChannelShuffle(_, choices, sizes) {
    if (sizes.length < 2) return undefined;
    return { step: layer("ChannelShuffle", [randomDivisor(choices, sizes[0] ?? 1, 8)]), sizes };
  },
  PixelShuffle(_, __, sizes) {
    const [channels = 1, height = 1, width = 1] = sizes;
    if (sizes.length !== 3) return undefined;
    const factor = channels % 4 === 0 ? 2 : 1;
    return {
      step: layer("PixelShuffle", [factor]),
      sizes: [channels / factor ** 2, factor * height, factor * width],
    };
  },
  PixelUnshuffle(_, __, sizes) {
    const [channels = 1, height = 1, width = 1] = sizes;
    if (sizes.length !== 3 || height % 2 !== 0 || width % 2 !== 0) return undefined;
    return { step: layer("PixelUnshuffle", [2]), sizes: [4 * channels, height / 2, width / 2] };
  },
  Upsample(_, choices, sizes): GeneratedLayer {
    const [channels = 1, height = 1, width = 1] = sizes;
    if (sizes.length !== 3 || 4 * elementsOf(sizes) > maxElements) return undefined;
    const options = { scaleFactor: 2, mode: choices.of(["nearest", "bilinear"]) };
    return { step: layer("Upsample", [options]), sizes: [channels, 2 * height, 2 * width] };
  },
  RotaryEmbedding(_, __, sizes) {
    const [rows = 1, width = 1] = sizes;
    if (sizes.length !== 2 || width % 2 !== 0 || rows > 512) return undefined;
    return { step: layer("RotaryEmbedding", [width, { maxLength: 512 }]), sizes };
  },
};
