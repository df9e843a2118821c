/**
 * batchNorm: normalises each channel of [N, C, …] by statistics over all of its elements, or by given statistics, then applies an optional
 * weight and an optional bias.
 */

import { dtypes, type RowKernel, term } from "../../ir/index.js";
import { sumToShape } from "../broadcast.js";
import { type DeviceArray, keptStrides } from "../device-array.js";
import { mul, sub } from "../elementwise/arithmetic.js";
import { cast } from "../elementwise/cast.js";
import { elementwise } from "../elementwise/elementwise.js";
import { reshape } from "../movement/reshape.js";
import {
  arrayAt,
  type GradientRule,
  type Gradients,
  type KernelOp,
  type Lowering,
  type NoAttributes,
  typeAt,
  type ValueType,
} from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { cacheByDtypes } from "../row-lowering.js";
import { badShape, formatShape } from "../shape.js";
import { lowerGradientSums } from "./channel-gradients.js";
import { lowerStatistics } from "./channel-statistics.js";
import { contiguousOf, elementsPerChannel, inferChannels, loadAs, lowerElements } from "./channels.js";
import { perChannelShape, recordedGradients } from "./recorded-gradients.js";

/** `eps` is added to the variance. */
export type BatchNormAttributes = { readonly eps?: number };

const defaultEps = 1e-5;
const none = term.constant(0, "f32");

/** The result has the layout of an operand: channels-last images stay so. */
function keepsLayoutOf(index: number): NonNullable<KernelOp["outputStrides"]> {
  return (_, operands, [type]) => {
    const operand = operands[index];
    return [operand !== undefined && type ? keptStrides([operand], type.shape) : undefined];
  };
}

/** Inputs: x, mean, 1 / σ, and the optional weight and bias. */
export const normalizeKernel = cacheByDtypes((x = "f32", ...rest): RowKernel => {
  const { compute } = dtypes[x];
  const [mean, inverseStd, weight, bias] = rest.map((dtype, index) => loadAs(compute, dtype, index + 1));
  const load = term.load(0, compute);
  const centred = mean ? term.sub(load, mean) : load;
  const normalized = inverseStd ? term.mul(centred, inverseStd) : centred;
  const weighted = weight ? term.mul(normalized, weight) : normalized;
  return {
    name: "normalize channels",
    inputs: [x, ...rest],
    outputs: [{ dtype: x, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: bias ? term.add(weighted, bias) : weighted }],
  };
});

/** Inputs: upstream, x, mean, 1 / σ, both sums, and the optional weight. Scalar: 1 / elements. */
const inputGradientKernel = cacheByDtypes((upstream = "f32", x = "f32", ...rest): RowKernel => {
  const { compute } = dtypes[x];
  const loads = rest.map((dtype, index) => loadAs(compute, dtype, index + 2));
  const [mean, inverseStd, sum, projection, weight] = loads;
  const inverseCount = term.scalar(0, compute);
  const fallback = term.constant(0, compute);
  const normalized = term.mul(term.sub(term.load(1, compute), mean ?? fallback), inverseStd ?? fallback);
  const meanGradient = term.mul(sum ?? fallback, inverseCount);
  const meanProjection = term.mul(projection ?? fallback, inverseCount);
  const centred = term.sub(
    term.sub(loadAs(compute, upstream, 0), meanGradient),
    term.mul(normalized, meanProjection),
  );
  const scale = weight ? term.mul(inverseStd ?? fallback, weight) : (inverseStd ?? fallback);
  return {
    name: "batchNormGradient",
    inputs: [upstream, x, ...rest],
    outputs: [{ dtype: x, per: "element" }],
    scalars: [compute],
    stages: [{ kind: "store", output: 0, value: term.mul(centred, scale) }],
  };
});

/** Operands: upstream, x, mean, 1 / σ. Outputs: the sums of upstream, and of upstream times the normalised x. */
const channelGradientSums: KernelOp = {
  kind: "kernel",
  name: "channelGradientSums",
  noGradient: "a recorded gradient is composed of other ops",
  infer(operands) {
    const { shape, dtype } = typeAt("channelGradientSums", operands, 1);
    const sum = { shape: [shape[1] ?? 0], dtype: dtypes[dtype].compute };
    return [sum, sum];
  },
  lower(lowering, operands, outputs) {
    const [upstream, x, mean, inverseStd] = [0, 1, 2, 3].map((index) => arrayAt(operands, index));
    if (!upstream?.storage || !x || !mean || !inverseStd) {
      for (const output of outputs) fillWith(lowering, output, 0);
      return;
    }
    const statistics = {
      mean: contiguousOf(lowering, mean),
      inverseStd: contiguousOf(lowering, inverseStd),
    };
    lowerGradientSums(lowering, { upstream, x, ...statistics }, outputs);
  },
};

/** Operands: upstream, x, mean, 1 / σ, both sums, and the optional weight. */
const batchNormGradient: KernelOp = {
  kind: "kernel",
  name: "batchNormGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer: (operands) =>
    [typeAt("batchNormGradient", operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
  outputStrides: keepsLayoutOf(1),
  lower(lowering, operands, [output]) {
    const arrays = operands.map((_, index) => arrayAt(operands, index));
    if (!output?.storage) return;
    lowerElements(
      lowering,
      inputGradientKernel(...arrays.map(({ dtype }) => dtype)),
      arrays.map((array, index) => ({ array, per: index < 2 ? "element" : "channel" })),
      output,
      { scalars: [1 / elementsPerChannel(output.shape)] },
    );
  },
};

/** Operands: upstream, x, mean, 1 / σ, and the optional weight. The statistics are constants. */
const scaleGradientKernel = cacheByDtypes((upstream = "f32", x = "f32", ...rest): RowKernel => {
  const { compute } = dtypes[x];
  const value = rest.reduce(
    (product, dtype, index) => term.mul(product, loadAs(compute, dtype, index + 1)),
    loadAs(compute, upstream, 0),
  );
  return {
    name: "scale channels",
    inputs: [upstream, ...rest],
    outputs: [{ dtype: x, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value }],
  };
});

/** Operands: upstream, 1 / σ, and the optional weight. */
const scaleChannels: KernelOp<{ readonly dtype: ValueType["dtype"] }> = {
  kind: "kernel",
  name: "scaleChannels",
  noGradient: "a recorded gradient is composed of other ops",
  infer: (operands, { dtype }) => [{ shape: typeAt("scaleChannels", operands, 0).shape, dtype }],
  outputStrides: keepsLayoutOf(0),
  lower(lowering, operands, [output], { dtype }) {
    const arrays = operands.map((_, index) => arrayAt(operands, index));
    const [upstream, ...rest] = arrays;
    if (!output?.storage || !upstream) return;
    lowerElements(
      lowering,
      scaleGradientKernel(upstream.dtype, dtype, ...rest.map((array) => array.dtype)),
      arrays.map((array, index) => ({ array, per: index < 1 ? "element" : "channel" })),
      output,
    );
  },
};

/** The gradients of the weight and the bias from the sums of `channelGradientSums`, in their dtypes. */
function affineGradients<V, A>(
  rule: GradientRule<V, A>,
  [sum, projection]: readonly V[],
  first: number,
): Gradients<V> {
  return [projection, sum].map((value, index) => {
    if (value === undefined || !rule.needs(first + index)) return undefined;
    const { dtype } = rule.typeOf(first + index);
    return rule.valueType(value).dtype === dtype ? value : rule.apply(cast, [value], { dtype });
  });
}

/** Stores (x − mean) / σ · weight + bias. `rest`: mean, 1 / σ, and the optional weight and bias, all [C]. */
function normalizeElements(
  lowering: Lowering,
  x: DeviceArray,
  rest: readonly DeviceArray[],
  output: DeviceArray,
): void {
  lowerElements(
    lowering,
    normalizeKernel(x.dtype, ...rest.map(({ dtype }) => dtype)),
    [{ array: x, per: "element" }, ...rest.map((array) => ({ array, per: "channel" as const }))],
    output,
  );
}

/** Operands: x, the optional weight, the optional bias. Further outputs: mean, 1 / σ and variance of each channel. */
export const batchNorm: KernelOp<BatchNormAttributes> = {
  kind: "kernel",
  name: "batchNorm",
  infer(operands) {
    const type = inferChannels("batchNorm", operands, ["weight", "bias"]);
    if (elementsPerChannel(type.shape) === 1) {
      throw badShape(
        "batchNorm",
        `${formatShape(type.shape)} has one element for each channel, which has no spread. Pass a larger batch, or use statistics of ` +
          "training: model.eval().",
      );
    }
    const statistic = { shape: [type.shape[1] ?? 0], dtype: dtypes[type.dtype].compute };
    return [type, statistic, statistic, statistic];
  },
  outputStrides: keepsLayoutOf(0),
  saves: ([needsX = false, ...others]) => ({
    operands: needsX && others.length > 0 ? [0, 1] : [0],
    outputs: [1, 2],
  }),
  gradient(rule) {
    if (rule.isRecorded) {
      const { shape } = rule.typeOf(0);
      const axes = [...shape.keys()].filter((axis) => axis !== 1);
      const { eps = defaultEps } = rule.attributes;
      return recordedGradients(rule, { axes, affineShape: perChannelShape(shape), eps, isCentred: true });
    }
    const saved = [rule.upstream, rule.operand(0), rule.output(1), rule.output(2)];
    const sums = rule.applyAll(channelGradientSums, saved);
    const weight = rule.needs(0) && rule.operandCount > 1 ? [rule.operand(1)] : [];
    return [
      rule.needs(0) ? rule.apply(batchNormGradient, [...saved, ...sums, ...weight]) : undefined,
      ...affineGradients(rule, sums, 1),
    ];
  },
  lower(lowering, operands, [output, mean, inverseStd, variance], { eps = defaultEps }) {
    const [x = arrayAt(operands, 0), ...affine] = operands.map((_, index) => arrayAt(operands, index));
    if (!output || !mean || !inverseStd || !variance) return;
    if (!output.storage) {
      for (const statistic of [mean, inverseStd, variance]) fillWith(lowering, statistic, Number.NaN);
      return;
    }
    lowerStatistics(lowering, x, { mean, inverseStd, variance }, eps);
    normalizeElements(lowering, x, [mean, inverseStd, ...affine], output);
  },
};

/** The gradients of `normalizeChannels` made of entries that have gradients too. */
function recordedChannelGradients<V>(rule: GradientRule<V, NoAttributes>): Gradients<V> {
  const { apply, upstream } = rule;
  const shape = perChannelShape(rule.typeOf(0).shape);
  const perChannel = (index: number): V => apply(reshape, [rule.operand(index)], { shape });
  const inputGradient = (): V => {
    const scaled = apply(mul, [upstream, perChannel(2)]);
    return rule.operandCount > 3 ? apply(mul, [scaled, perChannel(3)]) : scaled;
  };
  const weightGradient = (): V => {
    const centred = apply(sub, [rule.operand(0), perChannel(1)]);
    return apply(mul, [upstream, apply(mul, [centred, perChannel(2)])]);
  };
  const affine = (index: number, gradient: () => V): V | undefined => {
    if (!rule.needs(index)) return undefined;
    const { shape: channels, dtype } = rule.typeOf(index);
    const summed = apply(reshape, [sumToShape(rule, gradient(), shape)], { shape: channels });
    return apply(cast, [summed], { dtype });
  };
  return [
    rule.needs(0) ? apply(cast, [inputGradient()], { dtype: rule.typeOf(0).dtype }) : undefined,
    undefined,
    undefined,
    affine(3, weightGradient),
    affine(4, () => upstream),
  ];
}

/** Operands: x, the mean and 1 / σ of each channel, which are constants, the optional weight, the optional bias. */
export const normalizeChannels: KernelOp = {
  kind: "kernel",
  name: "normalizeChannels",
  infer: (operands) => [inferChannels("normalizeChannels", operands, ["mean", "1 / σ", "weight", "bias"])],
  outputStrides: keepsLayoutOf(0),
  saves([needsX = false, , , needsWeight = false, needsBias = false]) {
    if (needsWeight || needsBias) return { operands: needsX ? [0, 1, 2, 3] : [0, 1, 2] };
    return { operands: needsX ? [2, 3] : [] };
  },
  gradient(rule) {
    if (rule.isRecorded) return recordedChannelGradients(rule);
    const hasWeight = rule.operandCount > 3;
    const needsSums = [3, 4].some((index) => index < rule.operandCount && rule.needs(index));
    const sums = needsSums
      ? rule.applyAll(channelGradientSums, [rule.upstream, ...[0, 1, 2].map((index) => rule.operand(index))])
      : [];
    const factors = (): (typeof rule.upstream | number)[] =>
      hasWeight ? [rule.operand(2), rule.operand(3)] : [rule.operand(2)];
    return [
      rule.needs(0)
        ? rule.apply(scaleChannels, [rule.upstream, ...factors()], { dtype: rule.typeOf(0).dtype })
        : undefined,
      undefined,
      undefined,
      ...affineGradients(rule, sums, 3),
    ];
  },
  lower(lowering, operands, [output]) {
    const [x = arrayAt(operands, 0), ...rest] = operands.map((_, index) => arrayAt(operands, index));
    if (output?.storage) normalizeElements(lowering, x, rest, output);
  },
};

/** A running statistic moves towards a value: running · (1 − momentum) + value · factor · momentum. Operands: running, value, momentum. */
export const runningAverage = elementwise<{ readonly factor: number }>({
  name: "runningAverage",
  operands: 3,
  scalars: ({ factor }) => [factor],
  value: ([running = none, value = none, momentum = none], [factor = none]) =>
    term.add(term.mul(term.sub(1, momentum), running), term.mul(momentum, term.mul(factor, value))),
  noGradient: "it updates statistics",
});
