/**
 * convTranspose1d, convTranspose2d and convTranspose3d: the gradient of a convolution with respect to its input, as a layer. A backend
 * that gathers convolutions has kernels for it. On other backends one GEMM computes the windows of the result, and `fold` adds them.
 */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, promote } from "../../ir/index.js";
import { cast } from "../elementwise/cast.js";
import { isHalf, matmul } from "../matmul/matmul.js";
import { pad } from "../movement/pad.js";
import { permute, reshape } from "../movement/reshape.js";
import { type CompositeOp, type Composition, isType, typeAt, type ValueType } from "../op.js";
import { badShape, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";
import { addBias } from "./convolution.js";
import { canGather, gatheredTransposedConvolution } from "./gathered-convolution.js";
import { axesText, eachAxis, kernelText, type PerAxis, type WindowOptions } from "./geometry.js";
import { fold } from "./windows.js";

/** `outputPadding`: added to the size of the result at the end of each axis. */
export type TransposedConvolutionAttributes = WindowOptions & {
  readonly outputPadding?: PerAxis;
  readonly groups?: number;
};

/** Input [N, C, L] or [C, L], weight [C, out / groups, k], and an optional bias [out]. */
export const convTranspose1d = transposedConvolution("convTranspose1d", 1);
/** Input [N, C, H, W] or [C, H, W], weight [C, out / groups, kH, kW], and an optional bias [out]. */
export const convTranspose2d = transposedConvolution("convTranspose2d", 2);
/** Input [N, C, D, H, W] or [C, D, H, W], weight [C, out / groups, kD, kH, kW], and an optional bias [out]. */
export const convTranspose3d = transposedConvolution("convTranspose3d", 3);

interface Geometry {
  readonly batch: Shape;
  readonly count: Shape;
  readonly kernel: Shape;
  readonly stride: readonly number[];
  readonly dilation: readonly number[];
  /** The sizes that all windows together cover, and the borders that the result adds to them or crops. */
  readonly covered: Shape;
  readonly borders: readonly (readonly [before: number, after: number])[];
}

function transposedConvolution(name: string, rank: number): CompositeOp<TransposedConvolutionAttributes> {
  return {
    kind: "composite",
    name,
    infer(operands, attributes) {
      const [x, weight] = [typeAt(name, operands, 0), typeAt(name, operands, 1)];
      const geometry = geometryOf(name, rank, x, weight, attributes);
      const out = (weight.shape[1] ?? 0) * (attributes.groups ?? 1);
      const bias = operands[2];
      if (isType(bias) && !isSameShape(bias.shape, [out]))
        throw badShape(name, `bias ${formatShape(bias.shape)}: it must be [${out}], one for each output.`);
      const sizes = resultSizes(geometry);
      if (sizes.some((size) => size < 1))
        throw badShape(
          name,
          `the result of ${formatShape(x.shape)} would have the sizes ${formatShape(sizes)}. Use less padding.`,
        );
      return [{ shape: [...geometry.batch, out, ...sizes], dtype: promote(x.dtype, weight.dtype) }];
    },
    compose(build, [x = 0, weight = 0, bias], attributes) {
      const { apply, capabilities, typeOf } = build;
      const { groups = 1 } = attributes;
      const [inputType, weightType] = [typeOf(x), typeOf(weight)];
      const geometry = geometryOf(name, rank, inputType, weightType, attributes);
      const gathers = rank < 3 && capabilities.gathersConvolutions && canGather(inputType, weightType);
      if (gathers && isInputGradient(geometry))
        return [gather(build, [x, weight, bias], attributes, geometry)];
      const { batch, count, kernel, stride, dilation, covered, borders } = geometry;
      const [channels = 0, width = 0] = weightType.shape;
      const images = sizeOf(batch);
      const axes = (first: number, length: number): number[] =>
        Array.from({ length }, (_, axis) => first + axis);
      // [N, groups, C / groups, count…] → [groups, C / groups, N, count…]
      const grouped = apply(reshape, [x], { shape: [images, groups, channels / groups, ...count] });
      const channelsFirst = apply(permute, [grouped], { axes: [1, 2, 0, ...axes(3, rank)] });
      const columns = apply(reshape, [channelsFirst], {
        shape: [groups, channels / groups, images * sizeOf(count)],
      });
      const matrices = apply(reshape, [weight], {
        shape: [groups, channels / groups, width * sizeOf(kernel)],
      });
      const dtype = promote(inputType.dtype, weightType.dtype);
      // Half floats are rounded once, after the sums over windows and the bias.
      const product = apply(
        matmul,
        [apply(permute, [matrices], { axes: [0, 2, 1] }), columns],
        isHalf(dtype) ? { resultDtype: "f32" } : {},
      );
      // [groups, out / groups, kernel…, N, count…] → [N, groups, out / groups, count…, kernel…]
      const windowed = apply(reshape, [product], { shape: [groups, width, ...kernel, images, ...count] });
      const batchFirst = apply(permute, [windowed], {
        axes: [2 + rank, 0, 1, ...axes(3 + rank, rank), ...axes(2, rank)],
      });
      const merged = apply(reshape, [batchFirst], { shape: [...batch, groups * width, ...count, ...kernel] });
      const shape = [...batch, groups * width, ...covered];
      const folded = apply(fold, [merged], { shape, kernel, stride, dilation });
      const pads = borders.toReversed().flat();
      const result = pads.some((size) => size !== 0) ? apply(pad, [folded], { pads }) : folded;
      const biased = bias === undefined ? result : addBias(build, result, bias, rank);
      return [typeOf(biased).dtype === dtype ? biased : apply(cast, [biased], { dtype })];
    },
  };
}

function resultSizes({ covered, borders }: Geometry): readonly number[] {
  return covered.map((size, axis) => {
    const [before, after] = borders[axis] ?? [0, 0];
    return size + before + after;
  });
}

/** True if a convolution of the result has as many windows as the input has elements. With a larger `outputPadding` it has more. */
function isInputGradient({ stride, borders }: Geometry): boolean {
  return borders.every(([before, after], axis) => after - before < (stride[axis] ?? 1));
}

/** The kernels add a bias of the result's dtype; another one is converted. */
function gather<V>(
  { apply, typeOf }: Composition<V>,
  [x, weight, bias]: readonly [V | number, V | number, V | number | undefined],
  { outputPadding: _, ...attributes }: TransposedConvolutionAttributes,
  geometry: Geometry,
): V {
  const { groups = 1 } = attributes;
  const shape = [...geometry.batch, (typeOf(weight).shape[1] ?? 0) * groups, ...resultSizes(geometry)];
  const dtype = promote(typeOf(x).dtype, typeOf(weight).dtype);
  const convert = (value: V | number) =>
    typeOf(value).dtype === dtype ? value : apply(cast, [value], { dtype });
  const operands = bias === undefined ? [x, weight] : [x, weight, convert(bias)];
  return apply(gatheredTransposedConvolution, operands, { ...attributes, shape });
}

function geometryOf(
  op: string,
  rank: number,
  x: ValueType,
  weight: ValueType,
  { groups = 1, ...options }: TransposedConvolutionAttributes,
): Geometry {
  const [channels = 0, , ...kernel] = weight.shape;
  const batchAxes = x.shape.length - rank - 1;
  if (dtypes[promote(x.dtype, weight.dtype)].kind !== "float") {
    throw new HoldfastError(
      "BAD_DTYPE",
      `${op} of ${x.dtype} and ${weight.dtype}: it needs floats. Convert with to("f32").`,
      {
        numbers: { op },
      },
    );
  }
  const fits =
    kernel.length === rank &&
    (batchAxes === 0 || batchAxes === 1) &&
    !weight.shape.includes(0) &&
    x.shape.at(-rank - 1) === channels;
  if (!fits) {
    throw badShape(
      op,
      `input ${formatShape(x.shape)} and weight ${formatShape(weight.shape)}: the input is [N, C, ${axesText[rank]}] or [C, ${axesText[rank]}], ` +
        `and the weight [C, out / groups, ${kernelText[rank]}].`,
    );
  }
  if (!(Number.isSafeInteger(groups) && groups > 0 && channels % groups === 0))
    throw badShape(op, `${channels} channels in ${groups} groups: the groups must divide the channels.`);
  const each = (setting: keyof typeof options, fallback: number): number[] =>
    eachAxis(op, setting, options[setting] ?? fallback, rank, fallback);
  const [stride, dilation, padding, extra] = [
    each("stride", 1),
    each("dilation", 1),
    each("padding", 0),
    each("outputPadding", 0),
  ];
  const tooLarge = extra.findIndex((size, axis) => size >= Math.max(stride[axis] ?? 1, dilation[axis] ?? 1));
  if (tooLarge >= 0)
    throw badShape(op, `outputPadding ${formatShape(extra)}: it must be below the stride or the dilation.`);
  const count = x.shape.slice(-rank);
  const covered = count.map(
    (size, axis) =>
      (Math.max(1, size) - 1) * (stride[axis] ?? 1) + ((kernel[axis] ?? 1) - 1) * (dilation[axis] ?? 1) + 1,
  );
  const borders = padding.map((size, axis) => [0 - size, (extra[axis] ?? 0) - size] as const);
  return { batch: x.shape.slice(0, batchAxes), count, kernel, stride, dilation, covered, borders };
}
