/** Instructions of activations with attributes, norms over channels, losses of two operands, recurrent layers and random numbers. */

import { type Attributes, sizeOf } from "../../../src/ops/index.js";
import { type Builder, maxElements } from "./builder.js";
import type { Choices } from "./choices.js";
import { offWholes, positive } from "./elementwise.js";
import type { Maker } from "./instructions.js";
import { randomState } from "./program.js";

const hardActivations: readonly (readonly [op: string, attributes: Attributes])[] = [
  ["hardshrink", { lambda: 0.5 }],
  ["softshrink", { lambda: 0.5 }],
  ["hardtanh", { min: -1, max: 1.5 }],
  ["threshold", { threshold: 0.5, value: -1 }],
  ["hardswish", {}],
  ["hardsigmoid", {}],
];

const smoothActivations: typeof hardActivations = [
  ["softsign", {}],
  ["tanhshrink", {}],
  ["scaledSoftplus", { beta: 2, threshold: 2 }],
];

/** A value viewed as [n, channels, w], with an even number of elements per channel. */
function asChannels(builder: Builder, choices: Choices, channels: number): string | undefined {
  const x = builder.filled(choices);
  const count = sizeOf(builder.shapeOf(x));
  const perChannel = count / channels / 2;
  return Number.isInteger(perChannel)
    ? builder.op("reshape", [x], { shape: [2, channels, perChannel] })
    : undefined;
}

/** A value viewed as [1, depth, height, width]. */
function asVolume(builder: Builder, choices: Choices): string {
  const x = builder.filled(choices);
  const count = sizeOf(builder.shapeOf(x));
  const factor = [2, 3, 5, 1].find((candidate) => count % candidate === 0) ?? 1;
  const rest = count / factor;
  const second = [2, 3, 1].find((candidate) => rest % candidate === 0) ?? 1;
  return builder.op("reshape", [x], { shape: [1, factor, second, rest / second] });
}

const gates = { lstm: 4, gru: 3, tanh: 1, relu: 1 } as const;

export const layerMakers: Readonly<Record<string, Maker>> = {
  activation(builder, choices) {
    const [op, attributes] = choices.of([...hardActivations, ...smoothActivations]);
    const x = offWholes(builder, builder.anyFloat(choices));
    builder.op(op, [x], attributes, { size: builder.find(x).size + 1 });
  },
  gate(builder, choices) {
    const x = offWholes(builder, builder.anyFloat(choices));
    const y = builder.broadcastable(choices, builder.shapeOf(x));
    const size = builder.find(x).size * (builder.find(y).size + 1);
    builder.op(choices.of(["prelu", "sigmoidGate"]), [x, y], {}, { size });
  },
  channelNorm(builder, choices) {
    const channels = choices.of([1, 2, 4]);
    const x = asChannels(builder, choices, channels);
    if (x === undefined) return;
    const affine = () =>
      choices.isOneIn(2) ? [builder.same(choices, [channels]), builder.same(choices, [channels])] : [];
    const how = choices.below(3);
    // With a small eps, equal elements would be magnified rounding errors.
    if (how === 0) builder.all("batchNorm", [x, ...affine()], { eps: 0.1 }, { size: 2 });
    else if (how === 1) {
      const groups = choices.of([1, 2, 4].filter((count) => channels % count === 0));
      builder.all("groupNorm", [x, ...affine()], { groups, eps: 0.1 }, { size: 2 });
    } else {
      const [mean, spread] = [builder.same(choices, [channels]), builder.same(choices, [channels])];
      const size = 2 * (builder.find(x).size + builder.find(mean).size);
      builder.op("normalizeChannels", [x, mean, positive(builder, spread), ...affine()], {}, { size });
    }
  },
  running(builder, choices) {
    const x = builder.anyFloat(choices);
    const y = builder.broadcastable(choices, builder.shapeOf(x));
    builder.op("runningAverage", [x, y, 0.25], { factor: 1.5 });
  },
  targetLoss(builder, choices) {
    const x = builder.anyFloat(choices);
    const y = builder.broadcastable(choices, builder.shapeOf(x));
    const share = (value: string) => builder.op("sigmoid", [value], {}, { size: 1 });
    const bounded = (value: string) => builder.op("tanh", [value], {}, { size: 1 });
    const how = choices.below(6);
    if (how === 0) builder.op("probabilityCrossEntropy", [share(x), share(y)], {}, { size: 4 });
    else if (how === 1) builder.op("klDivergence", [x, positive(builder, y)], {}, { size: 9 });
    else if (how === 2) builder.op("klDivergenceOfLogs", [bounded(x), bounded(y)], {}, { size: 6 });
    else if (how === 3) {
      if (choices.isOneIn(2)) builder.op("poissonOfLog", [bounded(x), positive(builder, y)], {}, { size: 6 });
      else
        builder.op("poissonOfRate", [positive(builder, x), positive(builder, y)], { eps: 0.01 }, { size: 6 });
    } else if (how === 4) builder.op("softMargin", [x, bounded(y)], {}, { size: 4 });
    else {
      const sign = builder.op("sign", [offWholes(builder, y)], {}, { size: 1 });
      builder.op("hingeEmbedding", [offWholes(builder, x), sign], { margin: 0.5 }, { size: 4 });
    }
  },
  recurrent(builder, choices) {
    const cell = choices.of(["lstm", "gru", "tanh"] as const);
    const [steps, batch, hidden] = [1 + choices.below(3), 1 + choices.below(3), 1 + choices.below(3)];
    const width = gates[cell] * hidden;
    const operands = [
      builder.same(choices, [steps, batch, width]),
      builder.same(choices, [batch, hidden]),
      builder.same(choices, [width, hidden]),
      ...(cell === "lstm" ? [builder.same(choices, [batch, hidden])] : []),
      ...(cell === "gru" ? [builder.same(choices, [width])] : []),
      ...(choices.isOneIn(3) ? [builder.wholes(choices, [steps, batch], "bool", 0, 1)] : []),
    ];
    builder.all("recurrent", operands, { cell, isReversed: choices.isOneIn(2) }, { size: 2 });
  },
  random(builder, choices) {
    const shape = builder.randomShape(choices);
    const distribution = choices.of([
      { kind: "uniform", low: -1, high: 1 },
      { kind: "normal", mean: 0, std: 0.5 },
    ]);
    builder.op("random", [randomState], { shape, distribution, dtype: "f32" }, { size: 1 });
  },
  diagonals(builder, choices) {
    const x = builder.filled(choices, 2);
    const diagonal = choices.below(3) - 1;
    const how = choices.below(3);
    if (how < 2) builder.op(choices.of(["tril", "triu"]), [x], { diagonal });
    else builder.op("diagonal", [x], { offset: 0, axis1: 0, axis2: 1 });
  },
  volume(builder, choices) {
    const x = asVolume(builder, choices);
    const kernel = builder
      .shapeOf(x)
      .slice(1)
      .map((size) => Math.min(size, 2));
    const how = choices.below(2);
    if (how === 0)
      builder.op(choices.of(["maxPool3d", "avgPool3d"]), [x], { kernel, stride: choices.of([1, 2]) });
    else {
      const weight = builder.input("parameter", [2, 1, ...kernel], "float", -1, 1);
      const size = builder.find(x).size * Math.sqrt(sizeOf(kernel));
      builder.op("conv3d", [x, weight], { stride: choices.of([1, 2]), padding: choices.below(2) }, { size });
    }
  },
  transposedConvolution(builder, choices) {
    const rank = 1 + choices.below(3);
    const volume = asVolume(builder, choices);
    const sizes = builder.shapeOf(volume);
    const shape = [1, ...sizes.slice(1, rank), sizeOf(sizes.slice(rank))];
    if (8 * sizeOf(shape) > maxElements) return;
    const x = builder.op("reshape", [volume], { shape });
    const weight = builder.input("parameter", [1, 2, ...shape.slice(1).map(() => 2)], "float", -1, 1);
    const size = 2 * builder.find(x).size;
    builder.op(`convTranspose${rank}d`, [x, weight], { stride: choices.of([1, 2]), groups: 1 }, { size });
  },
  fold(builder, choices) {
    const x = builder.filled(choices, 2);
    const [count = 1, width = 1] = builder.shapeOf(x).slice(-2);
    const shape = [...builder.shapeOf(x).slice(0, -2), (count - 1) * 2 + width];
    if (sizeOf(shape) <= maxElements)
      builder.op(
        "fold",
        [x],
        { shape, kernel: [width], stride: 2, dilation: 1 },
        { size: 2 * builder.find(x).size },
      );
  },
};
