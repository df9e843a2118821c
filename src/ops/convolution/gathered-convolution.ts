/**
 * Convolutions on a backend that gathers patches while it multiplies: one kernel op forward, and one for each gradient. They save the
 * input and the weight, and no copy of the patches.
 */

import { type Dtype, promote } from "../../ir/index.js";
import {
  type Backend,
  type ChannelsLastOperands,
  type ChannelsLastShape,
  type ConvolutionDirection,
  type ConvolutionProblem,
  type ConvolutionShape,
  type DepthwiseOperands,
  isChannelsLast as isChannelsLastShape,
  isTf32,
  type Pair,
  paddedChannels,
  readsTransposedWeight,
  storedDtype,
} from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { expand, sumReduction } from "../broadcast.js";
import { copyArray } from "../copy.js";
import {
  channelsLastStrides,
  type DeviceArray,
  isChannelsLast,
  isContiguous,
  type Layout,
  type Strides,
} from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { reshape } from "../movement/reshape.js";
import { viewStrided } from "../movement/strided-view.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ValueType } from "../op.js";
import { lowerReduction } from "../reduction/reduce.js";
import { type Shape, sizeOf } from "../shape.js";
import { type WindowOptions, windowsOver } from "./geometry.js";

type GatherAttributes = WindowOptions & { readonly groups?: number };
/** The gradient of an operand of this shape. */
type GradientAttributes = GatherAttributes & { readonly shape: Shape };

const dtypesOfKernels: readonly ConvolutionShape["dtype"][] = ["f32", "f16", "bf16"];

/** True if `gatheredConvolution` can compute the convolution of these operands: it needs elements, and sums in f32. */
export function canGather(x: ValueType, weight: ValueType): boolean {
  const isEmpty = sizeOf(x.shape) === 0 || sizeOf(weight.shape) === 0;
  const dtype = promote(x.dtype, weight.dtype);
  return !isEmpty && dtypesOfKernels.some((known) => known === dtype);
}

/** Operands: the input, the weight and an optional bias, all of them not empty, as conv1d and conv2d take them. */
export const gatheredConvolution: KernelOp<GatherAttributes> = {
  kind: "kernel",
  name: "convolution",
  infer(operands, attributes) {
    const [x, weight] = [typeAt("convolution", operands, 0), typeAt("convolution", operands, 1)];
    return [{ shape: outputShape(x.shape, weight.shape, attributes), dtype: promote(x.dtype, weight.dtype) }];
  },
  outputStrides(backend, operands, [type], attributes) {
    const [x, weight] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    return type
      ? [stridesOf(backend, "forward", type, { x: x.shape, weight: weight.shape }, x, attributes)]
      : [];
  },
  saves: ([needsX = false, needsWeight = false]) => ({
    operands: [...(needsWeight ? [0] : []), ...(needsX ? [1] : [])],
  }),
  gradient(rule) {
    const { apply, attributes, upstream } = rule;
    const gradientOf = (index: number, op: KernelOp<GradientAttributes>, other: number) => {
      if (!rule.needs(index)) return undefined;
      const { shape } = rule.typeOf(index);
      return fitToOperand(rule, apply(op, [upstream, rule.operand(other)], { ...attributes, shape }), index);
    };
    const ofBias = () =>
      fitToOperand(
        rule,
        apply(biasGradient, [upstream], {
          ...{ ...attributes, x: rule.typeOf(0).shape, weight: rule.typeOf(1).shape, image: "y" },
        }),
        2,
      );
    return [
      gradientOf(0, inputGradient, 1),
      gradientOf(1, weightGradient, 0),
      rule.needs(2) ? ofBias() : undefined,
    ];
  },
  lower(lowering, operands, [y], attributes) {
    const [x, weight] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const bias = operands.length > 2 ? arrayAt(operands, 2) : undefined;
    if (y) lowerConvolution(lowering, "forward", { x, weight, y, ...(bias && { bias }) }, y, attributes);
  },
};

/** The gradient of a convolution's input, from the gradient of the output, the weight, and an optional bias, which is added. */
function transposed(name: string): KernelOp<GradientAttributes> {
  return {
    ...gradientOp(name),
    saves: ([y, weight]) => ({ operands: [...(weight ? [0] : []), ...(y ? [1] : [])] }),
    gradient(rule) {
      const { apply, upstream } = rule; // The shape of x.
      const { shape: x, ...attributes } = rule.attributes;
      const { shape } = rule.typeOf(1);
      const ofWeight = () => apply(weightGradient, [rule.operand(0), upstream], { ...attributes, shape });
      const ofBias = () =>
        apply(biasGradient, [upstream], { ...attributes, ...{ x, weight: shape, image: "x" } });
      return [
        rule.needs(0)
          ? fitToOperand(rule, apply(gatheredConvolution, [upstream, rule.operand(1)], attributes), 0)
          : undefined,
        rule.needs(1) ? fitToOperand(rule, ofWeight(), 1) : undefined,
        rule.needs(2) ? fitToOperand(rule, ofBias(), 2) : undefined,
      ];
    },
    outputStrides(backend, operands, [type], attributes) {
      const [y, weight] = [arrayAt(operands, 0), arrayAt(operands, 1)];
      if (!type) return [];
      const shapes = { x: type.shape, weight: weight.shape };
      return [stridesOf(backend, "input-gradient", type, shapes, y, attributes)];
    },
    lower(lowering, operands, [x], attributes) {
      const [y, weight] = [arrayAt(operands, 0), arrayAt(operands, 1)];
      const bias = operands.length > 2 ? arrayAt(operands, 2) : undefined;
      const arrays = { x, weight, y, ...(bias && { bias }) };
      if (x) lowerConvolution(lowering, "input-gradient", { ...arrays, x }, x, attributes);
    },
  };
}

/** Operands: the gradient of the output, and the weight. */
const inputGradient = transposed("convolutionInputGradient");

/**
 * Operands: the input and the weight of a transposed convolution, which are the output's gradient and the weight of a convolution, and an
 * optional bias. `shape`: that of the result.
 */
export const gatheredTransposedConvolution = transposed("transposedConvolution");

/** Operands: the gradient of the output, and the input. */
const weightGradient: KernelOp<GradientAttributes> = {
  ...gradientOp("convolutionWeightGradient"),
  saves: ([y, x]) => ({ operands: [...(x ? [0] : []), ...(y ? [1] : [])] }),
  gradient(rule) {
    const { apply, upstream } = rule; // The shape of the weight.
    const { shape: _, ...attributes } = rule.attributes;
    const { shape } = rule.typeOf(1);
    const ofInput = () => apply(inputGradient, [rule.operand(0), upstream], { ...attributes, shape });
    return [
      rule.needs(0)
        ? fitToOperand(rule, apply(gatheredConvolution, [rule.operand(1), upstream], attributes), 0)
        : undefined,
      rule.needs(1) ? fitToOperand(rule, ofInput(), 1) : undefined,
    ];
  },
  lower(lowering, operands, [weight], attributes) {
    const [y, x] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (weight) lowerConvolution(lowering, "weight-gradient", { x, weight, y }, weight, attributes);
  },
};

type BiasGradientAttributes = GatherAttributes & {
  readonly x: Shape;
  readonly weight: Shape;
  /** The image that has the bias: the output of a convolution, or of a transposed one. */
  readonly image: "x" | "y";
};

/**
 * Operand: the gradient of an image that has a bias. Half floats are summed as the other gradients read them, so that a step converts it once. In TF32
 * these may read a rounded copy, and the sum has all bits.
 */
const biasGradient: KernelOp<BiasGradientAttributes> = {
  kind: "kernel",
  name: "convolutionBiasGradient",
  gradient(rule) {
    const { shape } = rule.typeOf(0);
    const channels = [-1, ...new Array<number>(spatialRank(rule.attributes.weight)).fill(1)];
    const upstream = rule.apply(reshape, [rule.upstream], { shape: channels });
    return [rule.apply(expand, [upstream], { shape })];
  },
  infer(operands, { weight }) {
    const { shape, dtype } = typeAt("convolutionBiasGradient", operands, 0);
    return [{ shape: [shape.at(-spatialRank(weight) - 1) ?? 0], dtype }];
  },
  lower(lowering, operands, [output], { x, weight, image, ...attributes }) {
    const upstream = arrayAt(operands, 0);
    if (!output) return;
    const channelAxis = upstream.shape.length - spatialRank(weight) - 1;
    const axes = upstream.shape.map((_, axis) => axis).filter((axis) => axis !== channelAxis);
    const shape = kernelShape("weight-gradient", upstream.dtype, x, weight, attributes);
    const channelsLast = channelsLastOf(lowering.backend, shape, x, weight);
    const channels = image === "y" ? shape.outChannels : shape.channels;
    const isRead =
      channelsLast &&
      channelsLast.operands !== "f32" &&
      paddedChannels(channels, { channelsLast }) === channels;
    const storage = isRead && channelsLastOperand(lowering, upstream, { ...shape, channelsLast }).storage;
    const summed = storage
      ? { ...upstream, storage, strides: channelsLastStrides(upstream.shape), dtype: channelsLast.operands }
      : upstream;
    lowerReduction(lowering, sumReduction, summed, axes, output);
  },
};

function gradientOp(name: string) {
  return {
    kind: "kernel",
    name,
    infer(operands, { shape }) {
      return [{ shape, dtype: promote(typeAt(name, operands, 0).dtype, typeAt(name, operands, 1).dtype) }];
    },
  } satisfies Omit<KernelOp<GradientAttributes>, "lower">;
}

type Arrays = Readonly<Record<"x" | "weight" | "y", DeviceArray>> & { readonly bias?: DeviceArray };

/** The strides of an output that is an image, if the backend computes it channels-last. `image`: the operand that is gathered. */
function stridesOf(
  backend: Backend,
  direction: ConvolutionDirection,
  { shape, dtype }: ValueType,
  { x, weight }: { readonly x: Shape; readonly weight: Shape },
  image: Layout,
  attributes: GatherAttributes,
): Strides | undefined {
  const problem = kernelShape(direction, dtype, x, weight, attributes);
  const isLast =
    channelsLastOf(backend, problem, x, weight) !== undefined ||
    (backend.isDepthwiseConvolution(problem) && hasChannelsLast(image, weight));
  return isLast ? channelsLastStrides(shape) : undefined;
}

/** True if the channels of a batch are last. */
function hasChannelsLast(image: Layout, weight: Shape): boolean {
  return image.shape.length === weight.length && isChannelsLast(image);
}

/** How the backend computes a batch channels-last, if it does. */
function channelsLastOf(
  backend: Backend,
  shape: ConvolutionShape,
  x: Shape,
  weight: Shape,
): ChannelsLastOperands | undefined {
  return x.length === weight.length ? backend.channelsLastConvolution(shape) : undefined;
}

/** Operands in another layout, or of another dtype than the kernels read, are copied first. */
function lowerConvolution(
  lowering: Lowering,
  direction: ConvolutionDirection,
  arrays: Arrays,
  result: DeviceArray,
  attributes: GatherAttributes,
): void {
  const { x, weight, y, bias } = arrays;
  const firstShape = kernelShape(direction, result.dtype, x.shape, weight.shape, attributes);
  const channelsLast = channelsLastOf(lowering.backend, firstShape, x.shape, weight.shape);
  const depthwise = depthwiseOf(lowering.backend, firstShape, arrays);
  const shape = { ...firstShape, ...(channelsLast && { channelsLast }), ...(depthwise && { depthwise }) };
  const prepare = (array: DeviceArray): PreparedOperand => {
    if (array === result) return { storage: array.storage };
    if (isChannelsLastShape(shape)) return channelsLastOperand(lowering, array, shape);
    const isLast = depthwise?.isChannelsLast === true && array !== weight;
    const dtype = depthwise ? depthwiseDtype(array, firstShape) : result.dtype;
    return {
      storage: isLast
        ? channelsLastStorage(lowering, array, dtype)
        : contiguousStorage(lowering, array, dtype),
    };
  };
  const filter = readsTransposedWeight(shape) ? exchangeAxes(weight) : weight;
  const prepared = { x: prepare(x), weight: prepare(filter), y: prepare(y) };
  const storages = { x: prepared.x.storage, weight: prepared.weight.storage, y: prepared.y.storage };
  const rounded = (["x", "weight", "y"] as const).filter(
    (name) => direction !== "weight-gradient" && prepared[name].isRounded,
  );
  const biasStorage =
    bias && contiguousStorage(lowering, bias, channelsLast ? "f32" : storedDtype(shape, "weight"));
  const scratchBytes = lowering.backend.convolutionScratchBytes(shape);
  const problem = {
    ...{ ...shape, ...storages },
    ...(channelsLast && rounded.length > 0 && { channelsLast: { ...channelsLast, rounded } }),
    ...(biasStorage && { bias: biasStorage }),
    ...(scratchBytes > 0 && { scratch: lowering.scratch(scratchBytes) }),
  };
  if (hasMemory(problem)) lowering.convolution(problem);
}

/**
 * How the backend computes a depthwise convolution, if it is one: in the layout and dtype in which its operands are. A weight gradient has the
 * input's layout.
 */
function depthwiseOf(
  backend: Backend,
  shape: ConvolutionShape,
  { x, weight, y }: Arrays,
): DepthwiseOperands | undefined {
  if (channelsLastOf(backend, shape, x.shape, weight.shape) || !backend.isDepthwiseConvolution(shape))
    return undefined;
  const image = shape.direction === "input-gradient" ? y : x;
  const dtypes = Object.fromEntries(
    Object.entries({ x, weight, y }).flatMap(([name, array]) => {
      const dtype = depthwiseDtype(array, shape);
      return dtype === shape.dtype ? [] : [[name, dtype]];
    }),
  );
  return {
    ...(hasChannelsLast(image, weight.shape) && { isChannelsLast: true }),
    ...(Object.keys(dtypes).length > 0 && { dtypes }),
  };
}

/** The dtype as which a depthwise convolution reads an operand: its own, or that of the result if the kernels do not take it. */
function depthwiseDtype({ dtype }: DeviceArray, shape: ConvolutionShape): ConvolutionShape["dtype"] {
  return dtypesOfKernels.find((known) => known === dtype) ?? shape.dtype;
}

type Incomplete = { readonly [Name in keyof ConvolutionProblem]: ConvolutionProblem[Name] | undefined };

function hasMemory(problem: Partial<Incomplete> & ConvolutionShape): problem is ConvolutionProblem {
  return problem.x !== undefined && problem.weight !== undefined && problem.y !== undefined;
}

function contiguousStorage(lowering: Lowering, array: DeviceArray, dtype: Dtype): Storage | undefined {
  if (array.dtype === dtype && isContiguous(array)) return array.storage;
  const copy = lowering.scratchArray(array.shape, dtype);
  copyArray(lowering, array, copy);
  return copy.storage;
}

function channelsLastStorage(lowering: Lowering, array: DeviceArray, dtype: Dtype): Storage | undefined {
  const [, channels = 0, ...positions] = array.shape;
  const isBoth = isContiguous(array) && (channels === 1 || sizeOf(positions) === 1);
  if (array.dtype === dtype && (isBoth || isChannelsLast(array))) return array.storage;
  const copy = lowering.scratchArray(array.shape, dtype);
  copyArray(lowering, array, { ...copy, strides: channelsLastStrides(array.shape) });
  return copy.storage;
}

/** A weight [out, C, kernel…] as a view [C, out, kernel…]. */
function exchangeAxes(weight: DeviceArray): DeviceArray {
  const exchanged = ([first = 0, second = 0, ...rest]: readonly number[]): number[] => [
    second,
    first,
    ...rest,
  ];
  return { ...weight, shape: exchanged(weight.shape), strides: exchanged(weight.strides) };
}

interface PreparedOperand {
  readonly storage: Storage | undefined;
  /** True for f32 that was rounded to TF32. Default: false. */
  readonly isRounded?: boolean;
}

/** An operand with its channels last in memory, and zeros up to a whole vector of channels. In TF32 a copy is rounded. */
function channelsLastOperand(
  lowering: Lowering,
  array: DeviceArray,
  shape: ChannelsLastShape,
): PreparedOperand {
  const { operands } = shape.channelsLast;
  const [rows = 0, channels = 0, ...positions] = array.shape;
  const padded = paddedChannels(channels, shape);
  const isDense =
    isChannelsLast(array) || (isContiguous(array) && (channels === 1 || sizeOf(positions) === 1));
  if (array.dtype === operands && isDense && padded === channels) return { storage: array.storage };
  const copy = lowering.scratchArray([rows, ...positions, padded], operands);
  if (padded !== channels && copy.storage) lowering.fill(copy.storage, 0);
  const strides = channelsLastStrides([rows, padded, ...positions]);
  const target = { ...copy, shape: array.shape, strides };
  const isRounded = isTf32(shape.channelsLast);
  const to = padded === channels ? target : viewStrided(lowering, copy, target);
  copyArray(lowering, array, to, isRounded ? "tf32" : undefined);
  return { storage: copy.storage, isRounded };
}

function spatialRank(weight: Shape): number {
  return weight.length - 2;
}

function outputShape(x: Shape, weight: Shape, attributes: GatherAttributes): Shape {
  const rank = spatialRank(weight);
  const { count } = windowsOver("convolution", x, weight.slice(2), attributes);
  return [...x.slice(0, x.length - rank - 1), weight[0] ?? 0, ...count];
}

/** The shape as the kernels take it. A 1-D convolution has images of height 1. */
function kernelShape(
  direction: ConvolutionDirection,
  dtype: Dtype,
  x: Shape,
  weight: Shape,
  attributes: GatherAttributes,
): ConvolutionShape {
  const rank = spatialRank(weight);
  const { groups = 1 } = attributes;
  const { kernel, stride, padding, dilation, count } = windowsOver(
    "convolution",
    x,
    weight.slice(2),
    attributes,
  );
  const [out = 0, channels = 0] = weight;
  const pair = (numbers: readonly number[], height: number): Pair => [
    rank === 1 ? height : (numbers.at(-2) ?? height),
    numbers.at(-1) ?? 1,
  ];
  return {
    ...{ direction, dtype: dtype as ConvolutionShape["dtype"], groups, channels },
    ...{ batch: sizeOf(x.slice(0, x.length - rank - 1)), outChannels: out / groups },
    ...{ size: pair(x.slice(-rank), 1), outSize: pair(count, 1), kernel: pair(kernel, 1) },
    ...{ stride: pair(stride, 1), padding: pair(padding, 0), dilation: pair(dilation, 1) },
  };
}
