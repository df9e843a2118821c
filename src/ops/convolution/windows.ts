/** windows: a view of an array's last axes as windows that move along them and may overlap. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { channelsLastStrides, type DeviceArray, hasChannelsLast } from "../device-array.js";
import { type StridedView, viewStrided } from "../movement/strided-view.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ViewOp } from "../op.js";
import { badShape, formatShape, isSameShape, type Shape } from "../shape.js";
import { offsetsIn, type WindowOptions, type Windows, windowsOver } from "./geometry.js";
import { areOverlapping, isFirstOffset, zeroOtherElements } from "./window-gradient.js";

export type WindowAttributes = Omit<WindowOptions, "padding"> & { readonly kernel: readonly number[] };

/** [rest…, size…] becomes [rest…, windows…, kernel…]. */
export const windows: ViewOp<WindowAttributes> = {
  kind: "view",
  name: "windows",
  infer(operands, attributes) {
    const { shape, dtype } = typeAt("windows", operands, 0);
    const { kernel } = attributes;
    if (kernel.length > shape.length || !kernel.every((size) => Number.isSafeInteger(size) && size > 0)) {
      throw badShape("windows", `a kernel of ${formatShape(kernel)} over shape ${formatShape(shape)}.`);
    }
    const { count } = windowsOver("windows", shape, kernel, attributes);
    return [{ shape: [...shape.slice(0, shape.length - kernel.length), ...count, ...kernel], dtype }];
  },
  view({ shape, strides }, attributes) {
    const { kernel, stride, dilation, count } = windowsOver("windows", shape, attributes.kernel, attributes);
    const batchRank = shape.length - kernel.length;
    const spatialStrides = strides.slice(batchRank);
    return {
      shape: [...shape.slice(0, batchRank), ...count, ...kernel],
      strides: [
        ...strides.slice(0, batchRank),
        ...spatialStrides.map((step, axis) => step * (stride[axis] ?? 1)),
        ...spatialStrides.map((step, axis) => step * (dilation[axis] ?? 1)),
      ],
    };
  },
  gradient: (rule) => [
    rule.apply(fold, [rule.upstream], { shape: rule.typeOf(0).shape, ...rule.attributes }),
  ],
};

export type FoldAttributes = WindowAttributes & { readonly shape: Shape };

/**
 * Adds windows [rest…, windows…, kernel…] to an array of a shape: one pass for each offset in the window, in order, so the bits are fixed.
 */
export const fold: KernelOp<FoldAttributes> = {
  kind: "kernel",
  name: "fold",
  infer(operands, { shape, kernel, ...options }) {
    const type = typeAt("fold", operands, 0);
    const { count } = windowsOver("fold", shape, kernel, options);
    const expected = [...shape.slice(0, shape.length - kernel.length), ...count, ...kernel];
    if (isSameShape(type.shape, expected)) return [{ shape, dtype: type.dtype }];
    throw badShape(
      "fold",
      `windows ${formatShape(type.shape)} of a tensor ${formatShape(shape)}; its windows of ${formatShape(kernel)} are ${formatShape(expected)}.`,
    );
  },
  /** Images stay channels-last. */
  outputStrides(_, operands, [type], { kernel }) {
    const { shape, strides } = arrayAt(operands, 0);
    const rank = shape.length - kernel.length;
    const isLast = hasChannelsLast({ shape: shape.slice(0, rank), strides: strides.slice(0, rank) });
    return [type && isLast ? channelsLastStrides(type.shape) : undefined];
  },
  gradient({ apply, upstream, attributes: { shape: _, ...attributes } }) {
    return [apply(windows, [upstream], attributes)];
  },
  lower(lowering, operands, [output], { shape, kernel, ...options }) {
    const source = arrayAt(operands, 0);
    if (!output?.storage) return;
    const geometry = windowsOver("fold", shape, kernel, options);
    // Half floats are accumulated in f32 and narrowed once.
    const { compute } = dtypes[output.dtype];
    const isSum = areOverlapping(geometry) && output.dtype !== compute;
    const sum = isSum ? lowering.scratchArray(shape, compute) : output;
    zeroOtherElements(lowering, sum, geometry);
    copyFirstOffsets(lowering, source, sum, geometry);
    for (const offset of offsetsIn(kernel)) {
      if (isFirstOffset(geometry, offset)) continue;
      addInto(
        lowering,
        viewStrided(lowering, source, offsetView(source, geometry, offset)),
        viewStrided(lowering, sum, targetView(sum, geometry, offset, [])),
      );
    }
    if (sum !== output) copyArray(lowering, sum, output);
  },
};

/** The first offsets of all windows are a block of each window, and no two of these blocks overlap. */
function copyFirstOffsets(
  lowering: Lowering,
  source: DeviceArray,
  sum: DeviceArray,
  geometry: Windows,
): void {
  const { kernel, stride, dilation } = geometry;
  if (dilation.some((step) => step > 1)) return;
  const block = kernel.map((size, axis) => Math.min(size, stride[axis] ?? 1));
  const windowRank = source.shape.length - kernel.length;
  const blocks = { shape: [...source.shape.slice(0, windowRank), ...block], strides: source.strides };
  const origin = kernel.map(() => 0);
  copyArray(
    lowering,
    viewStrided(lowering, source, blocks),
    viewStrided(lowering, sum, targetView(sum, geometry, origin, block)),
  );
}

/** The elements of all windows from an offset on: a block of this size in each window, or one element if it has no axes. */
function targetView(
  { shape, strides }: DeviceArray,
  { kernel, stride, dilation, count }: Windows,
  offset: readonly number[],
  block: readonly number[],
): StridedView {
  const batchRank = shape.length - kernel.length;
  const spatialStrides = strides.slice(batchRank);
  return {
    shape: [...shape.slice(0, batchRank), ...count, ...block],
    strides: [
      ...strides.slice(0, batchRank),
      ...spatialStrides.map((step, axis) => step * (stride[axis] ?? 1)),
      ...spatialStrides.slice(0, block.length),
    ],
    offset: spatialStrides.reduce(
      (sum, step, axis) => sum + step * (dilation[axis] ?? 1) * (offset[axis] ?? 0),
      0,
    ),
  };
}

/** The elements of a source [rest…, windows…, kernel…] at one offset. */
function offsetView(
  { shape, strides }: DeviceArray,
  { kernel }: Windows,
  offset: readonly number[],
): StridedView {
  const windowRank = shape.length - kernel.length;
  const spatialStrides = strides.slice(windowRank);
  return {
    shape: shape.slice(0, windowRank),
    strides: strides.slice(0, windowRank),
    offset: offset.reduce((sum, at, axis) => sum + at * (spatialStrides[axis] ?? 0), 0),
  };
}

const kernels = new Map<string, RowKernel>();

function addKernel(source: Dtype, target: Dtype): RowKernel {
  const key = `${source} ${target}`;
  const { compute } = dtypes[target];
  const kernel: RowKernel = kernels.get(key) ?? {
    name: "fold",
    inputs: [source, target],
    outputs: [{ dtype: target, per: "element" }],
    scalars: [],
    stages: [
      {
        kind: "store",
        output: 0,
        value: term.add(term.load(1, compute), term.convert(term.load(0, dtypes[source].compute), compute)),
      },
    ],
  };
  kernels.set(key, kernel);
  return kernel;
}

function addInto(lowering: Lowering, source: DeviceArray, target: DeviceArray): void {
  if (!source.storage || !target.storage) return;
  lowering.row({
    kernel: addKernel(source.dtype, target.dtype),
    iteration: iterateElements(target.shape, [source.strides, target.strides, target.strides]),
    operands: [source.storage, target.storage, target.storage],
  });
}
