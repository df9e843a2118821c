/** windows: a view of an array's last axes as windows that move along them and may overlap. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import type { DeviceArray } from "../device-array.js";
import { type StridedView, viewStrided } from "../movement/strided-view.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ViewOp } from "../op.js";
import { badShape, formatShape, type Shape } from "../shape.js";
import { offsetsIn, type WindowOptions, windowsOver } from "./geometry.js";

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

/** Adds windows to zeros of a shape: one pass for each offset in the window, in order, so the bits are fixed. */
const fold: KernelOp<WindowAttributes & { readonly shape: Shape }> = {
  kind: "kernel",
  name: "fold",
  noGradient: "gradients of gradients are not recorded",
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("fold", operands, 0).dtype }],
  lower(lowering, operands, [output], { shape, kernel, ...options }) {
    const source = arrayAt(operands, 0);
    if (!output?.storage) return;
    // Half floats are accumulated in f32 and narrowed once.
    const { compute } = dtypes[output.dtype];
    const sum = output.dtype === compute ? output : lowering.scratchArray(shape, compute);
    if (!sum.storage) return;
    lowering.fill(sum.storage, 0);
    const { stride, dilation, count } = windowsOver("fold", shape, kernel, options);
    const batchRank = shape.length - kernel.length;
    const windowShape = [...shape.slice(0, batchRank), ...count];
    for (const windowOffset of offsetsIn(kernel)) {
      const sourceView = viewAtOffset(source, windowShape, windowOffset);
      const spatialStrides = sum.strides.slice(batchRank);
      const target: StridedView = {
        shape: windowShape,
        strides: [
          ...sum.strides.slice(0, batchRank),
          ...spatialStrides.map((step, axis) => step * (stride[axis] ?? 1)),
        ],
        offset: spatialStrides.reduce(
          (offset, step, axis) => offset + step * (dilation[axis] ?? 1) * (windowOffset[axis] ?? 0),
          0,
        ),
      };
      addInto(lowering, viewStrided(lowering, source, sourceView), viewStrided(lowering, sum, target));
    }
    if (sum !== output) copyArray(lowering, sum, output);
  },
};

/** The elements of all windows at one offset. */
function viewAtOffset({ strides }: DeviceArray, shape: Shape, windowOffset: readonly number[]): StridedView {
  const spatialStrides = strides.slice(shape.length);
  return {
    shape,
    strides: strides.slice(0, shape.length),
    offset: windowOffset.reduce((sum, at, axis) => sum + at * (spatialStrides[axis] ?? 0), 0),
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
