/** The description of a convolution, and its validation: the sizes fit each other, and the storages are large enough. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, type Expression } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";

/** What is computed: the output, or the gradient of the input or of the weight. */
export type ConvolutionDirection = "forward" | "input-gradient" | "weight-gradient";

/** One number for the height, one for the width. A 1-D convolution has a height of 1. */
export type Pair = readonly [height: number, width: number];

export interface ConvolutionShape {
  readonly direction: ConvolutionDirection;
  /** The dtype of all operands. Sums are accumulated in f32 and rounded once. */
  readonly dtype: "f32" | "f16" | "bf16";
  readonly batch: number;
  readonly groups: number;
  /** Input and output channels of one group. */
  readonly channels: number;
  readonly outChannels: number;
  readonly size: Pair;
  readonly outSize: Pair;
  readonly kernel: Pair;
  readonly stride: Pair;
  /** Zeros on both sides of each axis. */
  readonly padding: Pair;
  readonly dilation: Pair;
  /**
   * Images are [batch, size…, channels] in memory, and there is one group. Operands that are read have this dtype, whole vectors of 16
   * bytes of channels, with zeros after the last one, and the weight is [outChannels, kernel…, channels]. The bias is f32. Default: images are
   * [batch, channels, size…], and all operands have the result's dtype.
   */
  readonly channelsLast?: ChannelsLastOperands;
  /** Each group has one input and one output channel, and the kernels for such groups compute it. */
  readonly depthwise?: DepthwiseOperands;
  /** Which of the backend's candidates computes it, if there are several. Default: 0, the one with the shortest estimated time. */
  readonly algorithm?: number;
  /** Of an image that is written, channels-last or depthwise: a function of each element, before it is rounded. */
  readonly epilogue?: ConvolutionEpilogue;
}

/** The element is input 0 of the expression. */
export interface ConvolutionEpilogue {
  readonly value: Expression;
  readonly scalars: readonly number[];
}

export interface ChannelsLastOperands {
  /** f32 is multiplied as TF32, unless `isExact`. The input gradient in TF32 takes the weight as [channels, kernel…, outChannels]. */
  readonly operands: "bf16" | "f16" | "f32";
  /** Products of f32 are exact, and summed in f64. Every algorithm has the same bits. Default: false. */
  readonly isExact?: boolean;
  /**
   * Operands in f32 whose elements are numbers of TF32 already. The kernels round the others, which takes time. Default: none. A weight
   * gradient rounds both operands while it transposes them.
   */
  readonly rounded?: readonly ("x" | "weight" | "y")[];
}

export interface DepthwiseOperands {
  /** Images are [batch, size…, groups] in memory. Default: false: [batch, groups, size…]. */
  readonly isChannelsLast?: boolean;
  /** The dtypes of operands that are read. The bias has the weight's. Default: the result's. */
  readonly dtypes?: { readonly [Name in "x" | "weight" | "y"]?: ConvolutionShape["dtype"] };
}

export type DepthwiseShape = ConvolutionShape & { readonly depthwise: DepthwiseOperands };
export type DepthwiseProblem = ConvolutionProblem & DepthwiseShape;

export type ChannelsLastShape = ConvolutionShape & { readonly channelsLast: ChannelsLastOperands };
export type ChannelsLastProblem = ConvolutionProblem & ChannelsLastShape;

/** All operands are contiguous. The direction tells which of `x`, `weight` and `y` is written; the two others are read. */
export interface ConvolutionProblem extends ConvolutionShape {
  /** [batch, groups · channels, size…], or its gradient. */
  readonly x: Storage;
  /** [groups · outChannels, channels, kernel…], or its gradient. */
  readonly weight: Storage;
  /** [batch, groups · outChannels, outSize…], or its gradient. */
  readonly y: Storage;
  /** One number for each channel of the image that is written, which it is added to. A weight gradient has none. */
  readonly bias?: Storage;
  /** At least `convolutionScratchBytes` bytes; undefined if that is 0. */
  readonly scratch?: Storage;
}

/** The operand that each direction writes. */
export const writtenOperand = {
  forward: "y",
  "input-gradient": "x",
  "weight-gradient": "weight",
} as const satisfies Record<ConvolutionDirection, "x" | "weight" | "y">;

/** The numbers of elements of the operands. */
export function elementCounts(shape: ConvolutionShape): Readonly<Record<"x" | "weight" | "y", number>> {
  const { direction, batch, groups, size, outSize, kernel } = shape;
  const written = writtenOperand[direction];
  const [inX, inY] = [
    channelsIn(shape, shape.channels, written !== "x"),
    channelsIn(shape, shape.outChannels, written !== "y"),
  ];
  const [rows, inWeight] = readsTransposedWeight(shape)
    ? [shape.channels, channelsIn(shape, shape.outChannels, true)]
    : [shape.outChannels, channelsIn(shape, shape.channels, written !== "weight")];
  return {
    x: batch * groups * inX * areaOf(size),
    weight: groups * rows * inWeight * areaOf(kernel),
    y: batch * groups * inY * areaOf(outSize),
  };
}

/** True if the weight is read as [channels, kernel…, outChannels]: TF32 operands need the summed channels to be contiguous. */
export function readsTransposedWeight({ direction, channelsLast }: ConvolutionShape): boolean {
  return direction === "input-gradient" && channelsLast !== undefined && isTf32(channelsLast);
}

/** True if floats are multiplied as TF32. */
export function isTf32({ operands, isExact = false }: ChannelsLastOperands): boolean {
  return operands === "f32" && !isExact;
}

function channelsIn(shape: ConvolutionShape, channels: number, isRead: boolean): number {
  return isRead && isChannelsLast(shape) ? paddedChannels(channels, shape) : channels;
}

export function isChannelsLast(shape: ConvolutionShape): shape is ChannelsLastShape {
  return shape.channelsLast !== undefined;
}

export function isDepthwise(shape: ConvolutionShape): shape is DepthwiseShape {
  return shape.depthwise !== undefined;
}

/** The dtype of an operand in memory. */
export function storedDtype(
  { direction, dtype, channelsLast, depthwise }: ConvolutionShape,
  name: "x" | "weight" | "y",
): ConvolutionShape["dtype"] {
  if (name === writtenOperand[direction]) return dtype;
  return channelsLast?.operands ?? depthwise?.dtypes?.[name] ?? dtype;
}

/** The channels of a channels-last operand in memory: whole vectors of 16 bytes. */
export function paddedChannels(
  channels: number,
  { channelsLast }: Pick<ChannelsLastShape, "channelsLast">,
): number {
  const perVector = 16 / dtypes[channelsLast.operands].bytes;
  return Math.ceil(channels / perVector) * perVector;
}

export function areaOf([height, width]: Pair): number {
  return height * width;
}

/** The image that is written: the channels of all groups, and its size. */
export function writtenImage({ direction, groups, channels, outChannels, size, outSize }: ConvolutionShape): {
  readonly channels: number;
  readonly size: Pair;
} {
  return direction === "input-gradient"
    ? { channels: groups * channels, size }
    : { channels: groups * outChannels, size: outSize };
}

/** Rejects sizes and storages that do not fit each other. */
export function requireConvolution(problem: ConvolutionProblem): void {
  const { batch, groups, channels, outChannels, bias, direction, channelsLast, depthwise } = problem;
  for (const [name, value] of Object.entries({ batch, groups, channels, outChannels })) {
    requireCount(name, value, 0);
  }
  for (const axis of [0, 1] as const) requireAxis(problem, axis);
  for (const [name, elements] of Object.entries(elementCounts(problem))) {
    const operand = name as "x" | "weight" | "y";
    requireElements(name, elements, problem[operand], storedDtype(problem, operand));
  }
  if (problem.epilogue && !((channelsLast || depthwise) && direction !== "weight-gradient")) {
    throw rejected(
      "an epilogue needs the image of a channels-last or depthwise convolution. Apply the function in a call of its own.",
    );
  }
  if (depthwise && channelsLast) {
    throw rejected("`depthwise` and `channelsLast` exclude each other. Set `depthwise.isChannelsLast`.");
  }
  if (depthwise && (channels !== 1 || outChannels !== 1)) {
    throw rejected(
      `a depthwise convolution has one input and one output channel per group, and this one has ${channels} and ${outChannels}. Omit \`depthwise\`.`,
    );
  }
  if (channelsLast && groups !== 1) throw rejected(`channels are last, and there are ${groups} groups.`);
  if (!bias) return;
  if (direction === "weight-gradient") throw rejected("a weight gradient has no bias.");
  const biasDtype = channelsLast ? "f32" : storedDtype(problem, "weight");
  requireElements("bias", writtenImage(problem).channels, bias, biasDtype);
}

function requireAxis(problem: ConvolutionShape, axis: 0 | 1): void {
  const at = (name: "size" | "outSize" | "kernel" | "stride" | "padding" | "dilation"): number =>
    problem[name][axis];
  for (const name of ["size", "outSize", "padding"] as const) requireCount(name, at(name), 0);
  for (const name of ["kernel", "stride", "dilation"] as const) requireCount(name, at(name), 1);
  const reach = (at("outSize") - 1) * at("stride") + (at("kernel") - 1) * at("dilation") + 1;
  if (at("outSize") > 0 && reach > at("size") + 2 * at("padding")) {
    throw rejected(
      `${at("outSize")} windows along axis ${axis} reach over ${reach} elements, and there are ${at("size")} with a border of ` +
        `${at("padding")} on both sides.`,
    );
  }
}

/** The kernels count elements in 32 bits. */
const maxElements = 2 ** 31 - 1;

function requireElements(name: string, elements: number, storage: Storage, dtype: ConvolutionShape["dtype"]) {
  if (elements > maxElements) {
    throw new HoldfastError(
      "BAD_SIZE",
      `convolution: ${name} has ${elements} elements; the limit is ${maxElements}. Split the batch.`,
      { numbers: { elements, largest: maxElements } },
    );
  }
  const bytes = elements * dtypes[dtype].bytes;
  if (bytes > storage.span.size) {
    throw rejected(`${name} takes ${bytes} bytes, and "${storage.label}" has ${storage.span.size}.`);
  }
}

function requireCount(name: string, value: number, min: number): void {
  if (!Number.isSafeInteger(value) || value < min || value > maxElements) {
    throw rejected(`${name} is ${value}; pass a whole number from ${min} to 2³¹ − 1.`);
  }
}

/** An argument error of a convolution. */
export function rejected(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `convolution: ${message}`);
}
