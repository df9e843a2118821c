/**
 * maxPool1d, maxPool2d and maxPool3d: the largest element of every window. One pass for each offset in the window updates the maximum and its
 * offset. Nothing is copied, and the padding never exists in memory.
 */

import {
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { channelsLastStrides, type DeviceArray, isChannelsLast, type Layout } from "../device-array.js";
import { cast } from "../elementwise/cast.js";
import { gather } from "../indexing/gather.js";
import { pad } from "../movement/pad.js";
import { reshape } from "../movement/reshape.js";
import { type Range, slicedView } from "../movement/slice.js";
import { type StridedView, viewStrided } from "../movement/strided-view.js";
import { arrayAt, type CompositeOp, type KernelOp, type Lowering, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, type Shape, sizeOf } from "../shape.js";
import {
  axesText,
  eachAxis,
  offsetsIn,
  type PerAxis,
  type PoolWindowOptions,
  padsOf,
  type Windows,
  windowsOver,
} from "./geometry.js";
import { areOverlapping, isFirstOffset, zeroOtherElements } from "./window-gradient.js";
import { windows } from "./windows.js";

/** `stride`: default: the kernel's size. */
export type PoolAttributes = PoolWindowOptions & { readonly kernel: PerAxis };

export const maxPool1d = maxPool("maxPool1d", 1);
export const maxPool2d = maxPool("maxPool2d", 2);
export const maxPool3d = maxPool("maxPool3d", 3);

/** The second output is the offset of each maximum in its window, for the gradient. */
function maxPool(name: string, rank: number): KernelOp<PoolAttributes> {
  return {
    kind: "kernel",
    name,
    infer(operands, attributes) {
      const x = typeAt(name, operands, 0);
      const { count, kernel } = poolWindows(name, rank, x, attributes);
      const shape = [...x.shape.slice(0, x.shape.length - rank), ...count];
      return [
        { shape, dtype: x.dtype },
        { shape, dtype: offsetDtype(kernel) },
      ];
    },
    outputStrides: (_, [x], types) =>
      typeof x === "object" && isChannelsLast(x) ? types.map(({ shape }) => channelsLastStrides(shape)) : [],
    saves: () => ({ outputs: [1] }),
    gradient(rule) {
      const { shape } = rule.typeOf(0);
      const geometry = poolWindows(name, rank, rule.typeOf(0), rule.attributes);
      return [rule.apply(maxPoolGradient, [rule.upstream, rule.output(1)], { shape, geometry })];
    },
    lower(lowering, operands, [output, offsets], attributes) {
      const x = arrayAt(operands, 0);
      if (!output?.storage || !offsets?.storage) return;
      const geometry = poolWindows(name, rank, x, attributes);
      const dtype = offsetDtype(geometry.kernel);
      fillWith(lowering, output, Number.NEGATIVE_INFINITY);
      fillWith(lowering, offsets, noOffset[dtype]);
      for (const [offsetIndex, offset] of offsetsIn(geometry.kernel).entries()) {
        const { inputView, windowRanges } = overlapAtOffset(x, output, geometry, offset);
        const [input, maximum, maximumOffset] = [
          viewStrided(lowering, x, inputView),
          viewStrided(lowering, output, slicedView(output, windowRanges)),
          viewStrided(lowering, offsets, slicedView(offsets, windowRanges)),
        ];
        if (!input.storage || !maximum.storage || !maximumOffset.storage) continue;
        lowering.row({
          kernel: updateKernel(x.dtype, dtype),
          iteration: iterateElements(
            maximum.shape,
            [input, maximum, maximumOffset, maximum, maximumOffset].map(({ strides }) => strides),
          ),
          operands: [
            input.storage,
            maximum.storage,
            maximumOffset.storage,
            maximum.storage,
            maximumOffset.storage,
          ],
          scalars: [offsetIndex],
        });
      }
    },
  };
}

const maxPoolGradient: KernelOp<{ readonly shape: Shape; readonly geometry: Windows }> = {
  kind: "kernel",
  name: "maxPoolGradient",
  saves: () => ({ operands: [1] }),
  gradient: ({ apply, upstream, operand, attributes: { geometry } }) => [
    apply(takeAtOffsets, [upstream, operand(1)], { geometry }),
  ],
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("maxPoolGradient", operands, 0).dtype }],
  // The offsets have the layout of the pool's operand.
  outputStrides: (_, [, offsets], types) =>
    typeof offsets === "object" && isChannelsLast(offsets)
      ? types.map(({ shape }) => channelsLastStrides(shape))
      : [],
  lower(lowering, operands, [output], { shape, geometry }) {
    const [upstream, offsets] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output?.storage) return;
    // Half floats are accumulated in f32 and narrowed once.
    const { compute } = dtypes[output.dtype];
    const isSum = areOverlapping(geometry) && output.dtype !== compute;
    const sum = isSum ? { ...lowering.scratchArray(shape, compute), strides: output.strides } : output;
    zeroOtherElements(lowering, sum, geometry);
    for (const [offsetIndex, offset] of offsetsIn(geometry.kernel).entries()) {
      const { inputView, windowRanges } = overlapAtOffset(sum, offsets, geometry, offset);
      lowerOffset(lowering, {
        offsetIndex,
        isFirst: isFirstOffset(geometry, offset),
        upstream: viewStrided(lowering, upstream, slicedView(upstream, windowRanges)),
        offsets: viewStrided(lowering, offsets, slicedView(offsets, windowRanges)),
        sum: viewStrided(lowering, sum, inputView),
      });
    }
    if (sum !== output) copyArray(lowering, sum, output);
  },
};

/** Each window's element at an offset: what a pool with these offsets takes from another input. */
const takeAtOffsets: CompositeOp<{ readonly geometry: Windows }> = {
  kind: "composite",
  name: "takeAtOffsets",
  infer: (operands) => [
    { shape: typeAt("takeAtOffsets", operands, 1).shape, dtype: typeAt("takeAtOffsets", operands, 0).dtype },
  ],
  compose({ apply, typeOf }, [x = 0, offsets = 0], { geometry }) {
    const { kernel, stride, dilation } = geometry;
    const pads = padsOf(typeOf(x).shape, geometry);
    const padded = pads.some((size) => size > 0) ? apply(pad, [x], { pads }) : x;
    const windowed = apply(windows, [padded], { kernel, stride, dilation });
    const { shape } = typeOf(offsets);
    const elements = apply(reshape, [windowed], { shape: [...shape, sizeOf(kernel)] });
    // The kernel compares offsets as it reads them, so `windows` lists the elements of a window in their order.
    const index = apply(reshape, [apply(cast, [offsets], { dtype: "i32" })], { shape: [...shape, 1] });
    const taken = apply(gather, [elements, index], { axis: shape.length });
    return [apply(reshape, [taken], { shape })];
  },
};

/** Checks a pool's axes and kernel, and that every window has an element of the input. */
export function poolWindows(
  op: string,
  rank: number,
  { shape, dtype }: ValueType,
  { kernel, stride = kernel, ...options }: PoolAttributes,
): Windows {
  requireFloat(op, dtype);
  if (shape.length !== rank + 1 && shape.length !== rank + 2) {
    const spatial = axesText[rank];
    throw badShape(op, `input ${formatShape(shape)}: it is [N, C, ${spatial}] or [C, ${spatial}].`);
  }
  const sizes = eachAxis(op, "the kernel", kernel, rank, 1);
  const geometry = windowsOver(op, shape, sizes, { stride, ...options });
  const tooWide = geometry.padding.findIndex((border, axis) => 2 * border > (sizes[axis] ?? 1));
  if (tooWide < 0) return geometry;
  throw badShape(
    op,
    `padding ${formatShape(geometry.padding)} for a kernel of ${formatShape(sizes)}: it must be at most half of the kernel, so that no window ` +
      "covers padding only.",
  );
}

interface WindowOverlap {
  /** The input's elements at this offset of the windows. */
  readonly inputView: StridedView;
  /** The windows whose element at this offset is inside the input, as ranges of the output. */
  readonly windowRanges: readonly Range[];
}

function overlapAtOffset(
  input: Layout,
  output: Layout,
  geometry: Windows,
  offset: readonly number[],
): WindowOverlap {
  const batchRank = input.shape.length - offset.length;
  const spans = offset.map((at, axis) => {
    const [stride = 1, size = 0] = [geometry.stride[axis], input.shape[batchRank + axis]];
    // Window w has this offset at w · stride + first.
    const first = at * (geometry.dilation[axis] ?? 1) - (geometry.padding[axis] ?? 0);
    const from = Math.max(0, Math.ceil(-first / stride));
    const to = Math.min(output.shape[batchRank + axis] ?? 0, Math.floor((size - 1 - first) / stride) + 1);
    return { from, to: Math.max(from, to), start: from * stride + first, stride };
  });
  const inputStrides = input.strides.slice(batchRank);
  return {
    windowRanges: [
      ...new Array<Range>(batchRank).fill(null),
      ...spans.map(({ from, to }): Range => [from, to]),
    ],
    inputView: {
      shape: [...input.shape.slice(0, batchRank), ...spans.map(({ from, to }) => to - from)],
      strides: [
        ...input.strides.slice(0, batchRank),
        ...spans.map(({ stride }, axis) => stride * (inputStrides[axis] ?? 0)),
      ],
      offset: spans.reduce((sum, { start }, axis) => sum + start * (inputStrides[axis] ?? 0), 0),
    },
  };
}

type OffsetDtype = "u8" | "i32";

/** The offset of a window without an element so far. */
const noOffset: Readonly<Record<OffsetDtype, number>> = { u8: 255, i32: -1 };

/** Offsets are kept for the gradient: a byte each, if that suffices. */
function offsetDtype(kernel: readonly number[]): OffsetDtype {
  return sizeOf(kernel) <= noOffset.u8 ? "u8" : "i32";
}

const updateKernels = new Map<string, RowKernel>();

/** Updates the maximum and its offset with a larger element, a NaN, or the first element. */
function updateKernel(dtype: Dtype, offsets: OffsetDtype): RowKernel {
  const key = `${dtype} ${offsets}`;
  const { compute } = dtypes[dtype];
  const [x, maximum, maximumOffset] = [term.load(0, compute), term.load(1, compute), term.load(2, "i32")];
  const isFirst = term.eq(maximumOffset, noOffset[offsets]);
  const replaces = term.max(term.max(term.gt(x, maximum), term.ne(x, x)), isFirst);
  const kernel: RowKernel = updateKernels.get(key) ?? {
    name: "maximum of windows",
    inputs: [dtype, dtype, offsets],
    outputs: [
      { dtype, per: "element" },
      { dtype: offsets, per: "element" },
    ],
    scalars: ["i32"],
    // The offset is stored first, because it depends on the old maximum.
    stages: [
      { kind: "store", output: 1, value: term.select(replaces, term.scalar(0, "i32"), maximumOffset) },
      { kind: "store", output: 0, value: term.max(x, maximum) },
    ],
  };
  updateKernels.set(key, kernel);
  return kernel;
}

const gradientKernels = new Map<string, RowKernel>();

function gradientKernel(upstream: Dtype, offsets: Dtype, sum: Dtype, isFirst: boolean): RowKernel {
  const key = `${upstream} ${offsets} ${sum} ${isFirst}`;
  const { compute } = dtypes[sum];
  const gradient: Expression = term.select(
    term.eq(term.load(1, "i32"), term.scalar(0, "i32")),
    term.convert(term.load(0, dtypes[upstream].compute), compute),
    0,
  );
  const kernel: RowKernel = gradientKernels.get(key) ?? {
    name: "maxPoolGradient",
    inputs: isFirst ? [upstream, offsets] : [upstream, offsets, sum],
    outputs: [{ dtype: sum, per: "element" }],
    scalars: ["i32"],
    stages: [
      { kind: "store", output: 0, value: isFirst ? gradient : term.add(term.load(2, compute), gradient) },
    ],
  };
  gradientKernels.set(key, kernel);
  return kernel;
}

interface OffsetGradient {
  readonly offsetIndex: number;
  /** True if the elements have no value yet. */
  readonly isFirst: boolean;
  readonly upstream: DeviceArray;
  readonly offsets: DeviceArray;
  readonly sum: DeviceArray;
}

/** Writes or adds the upstream gradient of the windows whose maximum is at this offset, and 0 for the others. */
function lowerOffset(
  lowering: Lowering,
  { offsetIndex, isFirst, upstream, offsets, sum }: OffsetGradient,
): void {
  if (!upstream.storage || !offsets.storage || !sum.storage) return;
  const arrays = isFirst ? [upstream, offsets, sum] : [upstream, offsets, sum, sum];
  lowering.row({
    kernel: gradientKernel(upstream.dtype, offsets.dtype, sum.dtype, isFirst),
    iteration: iterateElements(
      sum.shape,
      arrays.map(({ strides }) => strides),
    ),
    operands: arrays.flatMap(({ storage }) => storage ?? []),
    scalars: [offsetIndex],
  });
}
