/** gather and scatterAdd: read or add single elements along an axis, with an index for each. */

import { HoldfastError } from "../../errors/index.js";
import { copyArray } from "../copy.js";
import type { DeviceArray } from "../device-array.js";
import { pad } from "../movement/pad.js";
import { type Range, slicedView } from "../movement/slice.js";
import { viewStrided } from "../movement/strided-view.js";
import { arrayAt, type CheckContext, type KernelOp, type Lowering, typeAt } from "../op.js";
import { axisOf, badShape, formatShape, isSameShape, type Shape } from "../shape.js";
import { indexTypeAt, requireIndicesInside } from "./index-values.js";
import { copyIndexed } from "./indexed-copy.js";
import { lowerScatter } from "./scatter.js";

type AxisAttribute = { readonly axis: number };

/** `output[i, j] = x[i, index[i, j]]` for axis 1. The output has the index's shape, which may be smaller along other axes. */
export const gather: KernelOp<AxisAttribute> = {
  kind: "kernel",
  name: "gather",
  infer(operands, { axis }) {
    const { shape, dtype } = typeAt("gather", operands, 0);
    const index = indexTypeAt("gather", operands, 1);
    requireIndexFits("gather", shape, index.shape, axis);
    return [{ shape: index.shape, dtype }];
  },
  check: (lowering, operands, { axis }) => checkIndices(lowering, operands, axis),
  saves: () => ({ operands: [1] }),
  gradient(rule) {
    const { shape } = rule.typeOf(0);
    const axis = axisOf("gather", rule.attributes.axis, shape.length);
    return [rule.apply(gatherGradient, [rule.upstream, rule.operand(1)], { shape, axis })];
  },
  lower(lowering, operands, [output], { axis }) {
    const [source, index] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output) return;
    const gatherAxis = axisOf("gather", axis, source.shape.length);
    copyIndexed(lowering, {
      source,
      sourceStrides: source.strides.with(gatherAxis, 0),
      index,
      indexStrides: index.strides,
      step: source.strides[gatherAxis] ?? 0,
      length: source.shape[gatherAxis] ?? 0,
      output,
    });
  },
};

export const gatherGradient: KernelOp<AxisAttribute & { readonly shape: Shape }> = {
  kind: "kernel",
  name: "gatherGradient",
  saves: () => ({ operands: [1] }),
  gradient: ({ apply, upstream, operand, attributes: { axis } }) => [
    apply(gather, [upstream, operand(1)], { axis }),
  ],
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("gatherGradient", operands, 0).dtype }],
  lower(lowering, operands, [output], { axis }) {
    if (!output?.storage) return;
    lowering.fill(output.storage, 0);
    const [source, index] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    scatterIntoSlice(lowering, output, axis, index, source);
  },
};

/** `x[index[i, j], j] += source[i, j]` for axis 0. Elements are added in ascending order along the axis, so the bits are fixed. */
export const scatterAdd: KernelOp<AxisAttribute> = {
  kind: "kernel",
  name: "scatterAdd",
  inPlace: 0,
  infer(operands, { axis }) {
    const { shape, dtype } = typeAt("scatterAdd", operands, 0);
    const index = indexTypeAt("scatterAdd", operands, 1);
    const source = typeAt("scatterAdd", operands, 2);
    requireIndexFits("scatterAdd", shape, index.shape, axis);
    const isCovered =
      source.shape.length === index.shape.length &&
      index.shape.every((size, dimension) => size <= (source.shape[dimension] ?? 0));
    if (!isCovered) {
      throw badShape(
        "scatterAdd",
        `a source of ${formatShape(source.shape)} for an index of ${formatShape(index.shape)}: every index needs an element.`,
      );
    }
    if (source.dtype === dtype) return [{ shape, dtype }];
    throw new HoldfastError(
      "BAD_DTYPE",
      `scatterAdd of ${source.dtype} into ${dtype}: they must be the same. Convert with to("${dtype}").`,
      { numbers: { op: "scatterAdd" } },
    );
  },
  check: (lowering, operands, { axis }) => checkIndices(lowering, operands, axis),
  saves: ([, , source]) => ({ operands: source ? [1] : [] }),
  gradient(rule) {
    const sourceGradient = () => {
      const { shape } = rule.typeOf(2);
      const gathered = rule.apply(gather, [rule.upstream, rule.operand(1)], rule.attributes);
      const used = rule.typeOf(1).shape;
      if (isSameShape(shape, used)) return gathered;
      // The source may be larger than the index. Elements without an index have a gradient of 0.
      const unused = shape.map((size, dimension) => size - (used[dimension] ?? 0));
      return rule.apply(pad, [gathered], { pads: unused.toReversed().flatMap((size) => [0, size]) });
    };
    return [
      rule.needs(0) ? rule.upstream : undefined,
      undefined,
      rule.needs(2) ? sourceGradient() : undefined,
    ];
  },
  lower(lowering, operands, [output], { axis }) {
    const [x, index, source] = [arrayAt(operands, 0), arrayAt(operands, 1), arrayAt(operands, 2)];
    if (!output?.storage) return;
    const isInPlace = x.storage?.span.address === output.storage.span.address;
    if (!isInPlace) copyArray(lowering, x, output);
    const used = viewStrided(lowering, source, { shape: index.shape, strides: source.strides });
    scatterIntoSlice(lowering, output, axisOf("scatterAdd", axis, x.shape.length), index, used);
  },
};

/** Scatters into the slice of the target that has the index's sizes along the other axes. */
function scatterIntoSlice(
  lowering: Lowering,
  target: DeviceArray,
  axis: number,
  index: DeviceArray,
  source: DeviceArray,
): void {
  const ranges = index.shape.map((size, dimension): Range => (dimension === axis ? null : [0, size]));
  const slice = viewStrided(lowering, target, slicedView(target, ranges));
  lowerScatter(lowering, { target: slice, axis, index, isIndexShared: false, source });
}

function checkIndices(
  context: CheckContext,
  operands: readonly (DeviceArray | number)[],
  axis: number,
): void {
  const { shape } = arrayAt(operands, 0);
  const indexedAxis = axisOf(context.op, axis, shape.length);
  const size = shape[indexedAxis] ?? 0;
  requireIndicesInside(
    context,
    arrayAt(operands, 1),
    size,
    `axis ${indexedAxis} of ${formatShape(shape)} has ${size}`,
  );
}

function requireIndexFits(op: string, shape: Shape, index: Shape, axis: number): void {
  const indexedAxis = axisOf(op, axis, shape.length);
  const fits =
    index.length === shape.length &&
    index.every((size, dimension) => dimension === indexedAxis || size <= (shape[dimension] ?? 0));
  if (fits) return;
  throw badShape(
    op,
    `an index of ${formatShape(index)} for shape ${formatShape(shape)} along axis ${indexedAxis}: it must have as many axes, and only ` +
      "that axis may be larger.",
  );
}
