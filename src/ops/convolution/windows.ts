/** windows: an array's last axes seen through windows that are moved along them. A view; they may overlap. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import type { DeviceArray } from "../device-array.js";
import { type Part, viewStrided } from "../movement/part.js";
import { arrayAt, type KernelOp, type Lowering, typeAt, type ViewOp } from "../op.js";
import { badShape, formatShape, type Shape } from "../shape.js";
import { placesIn, type WindowOptions, windowsOver } from "./geometry.js";

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
    const rest = shape.length - kernel.length;
    const steps = strides.slice(rest);
    return {
      shape: [...shape.slice(0, rest), ...count, ...kernel],
      strides: [
        ...strides.slice(0, rest),
        ...steps.map((step, axis) => step * (stride[axis] ?? 1)),
        ...steps.map((step, axis) => step * (dilation[axis] ?? 1)),
      ],
    };
  },
  gradient: (rule) => [
    rule.apply(fold, [rule.upstream], { shape: rule.typeOf(0).shape, ...rule.attributes }),
  ],
};

/** Windows added back into zeros of a shape: one pass for each place in the window, in order, so the bits are fixed. */
const fold: KernelOp<WindowAttributes & { readonly shape: Shape }> = {
  kind: "kernel",
  name: "fold",
  noGradient: "gradients of gradients are not recorded",
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("fold", operands, 0).dtype }],
  lower(lowering, operands, [output], { shape, kernel, ...options }) {
    const source = arrayAt(operands, 0);
    if (!output?.storage) return;
    // Half floats are added up in f32 and narrowed once.
    const wide = dtypes[output.dtype].compute;
    const sum = output.dtype === wide ? output : lowering.scratchArray(shape, wide);
    if (!sum.storage) return;
    lowering.fill(sum.storage, 0);
    const { stride, dilation, count } = windowsOver("fold", shape, kernel, options);
    const rest = shape.length - kernel.length;
    const seen = [...shape.slice(0, rest), ...count];
    for (const place of placesIn(kernel)) {
      const part = atPlace(source, seen, place);
      const steps = sum.strides.slice(rest);
      const target: Part = {
        shape: seen,
        strides: [...sum.strides.slice(0, rest), ...steps.map((step, axis) => step * (stride[axis] ?? 1))],
        offset: steps.reduce((at, step, axis) => at + step * (dilation[axis] ?? 1) * (place[axis] ?? 0), 0),
      };
      addInto(lowering, viewStrided(lowering, source, part), viewStrided(lowering, sum, target));
    }
    if (sum !== output) copyArray(lowering, sum, output);
  },
};

/** One place of every window. */
function atPlace({ strides }: DeviceArray, shape: Shape, place: readonly number[]): Part {
  const steps = strides.slice(shape.length);
  return {
    shape,
    strides: strides.slice(0, shape.length),
    offset: place.reduce((sum, at, axis) => sum + at * (steps[axis] ?? 0), 0),
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
