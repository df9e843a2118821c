/**
 * conv1d, conv2d and conv3d. A backend that gathers convolutions has kernels for them. The others compute them by im2col: the weight as a matrix,
 * times a matrix whose columns are the windows of the input. The columns are a copy of kernel-size times the input's size. In return
 * forward and backward are one large GEMM each.
 */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, promote } from "../../ir/index.js";
import { add } from "../elementwise/arithmetic.js";
import { cast } from "../elementwise/cast.js";
import { isHalf, matmul } from "../matmul/matmul.js";
import { pad } from "../movement/pad.js";
import { permute, reshape } from "../movement/reshape.js";
import { type CompositeOp, type Composition, isType, typeAt, type ValueType } from "../op.js";
import { badShape, formatShape, type Shape, sizeOf } from "../shape.js";
import { canGather, gatheredConvolution } from "./gathered-convolution.js";
import { axesText, kernelText, padsOf, type WindowOptions, type Windows, windowsOver } from "./geometry.js";
import { windows } from "./windows.js";

/** `groups`: the channels are split into so many groups, each with its slice of the weight. */
export type ConvolutionAttributes = WindowOptions & { readonly groups?: number };

/** Input [N, C, L] or [C, L], weight [out, C / groups, k], and an optional bias [out]. */
export const conv1d = convolution("conv1d", 1);
/** Input [N, C, H, W] or [C, H, W], weight [out, C / groups, kH, kW], and an optional bias [out]. */
export const conv2d = convolution("conv2d", 2);
/** Input [N, C, D, H, W] or [C, D, H, W], weight [out, C / groups, kD, kH, kW], and an optional bias [out]. */
export const conv3d = convolution("conv3d", 3);

function convolution(name: string, rank: number): CompositeOp<ConvolutionAttributes> {
  return {
    kind: "composite",
    name,
    infer(operands, attributes) {
      const [x, weight] = [typeAt(name, operands, 0), typeAt(name, operands, 1)];
      const bias = operands[2];
      const { count } = requireFits(name, rank, x, weight, isType(bias) ? bias.shape : undefined, attributes);
      const dtype = promote(x.dtype, weight.dtype);
      const batch = x.shape.slice(0, x.shape.length - rank - 1);
      return [{ shape: [...batch, weight.shape[0] ?? 0, ...count], dtype }];
    },
    compose(build, [x = 0, weight = 0, bias], attributes) {
      const { apply, capabilities, typeOf } = build;
      if (rank < 3 && capabilities.gathersConvolutions && canGather(typeOf(x), typeOf(weight))) {
        return [gather(build, [x, weight, bias], attributes)];
      }
      const { groups = 1, stride, dilation } = attributes;
      const shape = typeOf(x).shape;
      const geometry = windowsOver(name, shape, typeOf(weight).shape.slice(2), attributes);
      const { count, kernel, padding } = geometry;
      const [out = 0, width = 0] = typeOf(weight).shape;
      const batch = sizeOf(shape.slice(0, shape.length - rank - 1));
      const height = width * sizeOf(kernel);

      const padded = padding.some((size) => size > 0)
        ? apply(pad, [x], { pads: padsOf(shape, geometry) })
        : x;
      const windowed = apply(windows, [padded], {
        kernel,
        ...(stride !== undefined && { stride }),
        ...(dilation !== undefined && { dilation }),
      });
      // [N, groups, C / groups, count…, kernel…] → [groups, C / groups, kernel…, N, count…], whose last axis is long.
      const grouped = apply(reshape, [windowed], { shape: [batch, groups, width, ...count, ...kernel] });
      const channelsFirst = apply(permute, [grouped], {
        axes: [1, 2, ...axes(3 + rank, rank), 0, ...axes(3, rank)],
      });
      const columns = apply(reshape, [channelsFirst], { shape: [groups, height, batch * sizeOf(count)] });
      const matrix = apply(reshape, [weight], { shape: [groups, out / groups, height] });
      // With a bias, the sum of half floats is rounded once, after the bias.
      const dtype = promote(typeOf(x).dtype, typeOf(weight).dtype);
      const isWide = bias !== undefined && isHalf(dtype);
      const product = apply(matmul, [matrix, columns], isWide ? { resultDtype: "f32" } : {});
      // [groups, out / groups, N, count…] → [N, groups, out / groups, count…]
      const unflattened = apply(reshape, [product], { shape: [groups, out / groups, batch, ...count] });
      const batchFirst = apply(permute, [unflattened], { axes: [2, 0, 1, ...axes(3, rank)] });
      const result = apply(reshape, [batchFirst], {
        shape: [...shape.slice(0, shape.length - rank - 1), out, ...count],
      });
      const biased = bias === undefined ? result : addBias(build, result, bias, rank);
      return [typeOf(biased).dtype === dtype ? biased : apply(cast, [biased], { dtype })];
    },
  };
}

/** The kernels add a bias of the result's dtype; another one is converted. */
function gather<V>(
  { apply, typeOf }: Composition<V>,
  [x, weight, bias]: readonly [V | number, V | number, V | number | undefined],
  attributes: ConvolutionAttributes,
): V {
  if (bias === undefined) return apply(gatheredConvolution, [x, weight], attributes);
  const dtype = promote(typeOf(x).dtype, typeOf(weight).dtype);
  const converted = typeOf(bias).dtype === dtype ? bias : apply(cast, [bias], { dtype });
  return apply(gatheredConvolution, [x, weight, converted], attributes);
}

export function addBias<V>({ apply, typeOf }: Composition<V>, result: V, bias: V | number, rank: number): V {
  const shape = [...typeOf(bias).shape, ...new Array<number>(rank).fill(1)];
  return apply(add, [result, apply(reshape, [bias], { shape })]);
}

function axes(first: number, count: number): number[] {
  return Array.from({ length: count }, (_, axis) => first + axis);
}

function requireFits(
  op: string,
  rank: number,
  x: ValueType,
  weight: ValueType,
  bias: Shape | undefined,
  attributes: ConvolutionAttributes,
): Windows {
  const { groups = 1 } = attributes;
  const [out = 0, width = 0, ...kernel] = weight.shape;
  const channels = x.shape.at(-rank - 1) ?? 0;
  const batchAxes = x.shape.length - rank - 1;
  const spatial = axesText[rank];
  const operands = `input ${formatShape(x.shape)} and weight ${formatShape(weight.shape)} with ${groups} group${groups === 1 ? "" : "s"}`;
  if (dtypes[promote(x.dtype, weight.dtype)].kind !== "float") {
    throw new HoldfastError(
      "BAD_DTYPE",
      `${op} of ${x.dtype} and ${weight.dtype}: a matrix product needs floats. Convert with to("f32").`,
      { numbers: { op } },
    );
  }
  if (kernel.length !== rank || (batchAxes !== 0 && batchAxes !== 1) || kernel.includes(0)) {
    throw badShape(
      op,
      `${operands}: the input is [N, C, ${spatial}] or [C, ${spatial}] and the weight [out, C / groups, ${kernelText[rank]}].`,
    );
  }
  const isDivisible = Number.isSafeInteger(groups) && groups > 0 && out % groups === 0;
  if (!isDivisible || channels !== width * groups) {
    throw badShape(
      op,
      `${operands}: the input's ${channels} channels must be groups times the weight's ${width}, and its ${out} outputs a multiple of ` +
        "the groups.",
    );
  }
  if (bias && (bias.length !== 1 || bias[0] !== out)) {
    throw badShape(op, `bias ${formatShape(bias)}: it must be [${out}], one for each output of the weight.`);
  }
  return windowsOver(op, x.shape, kernel, attributes);
}
