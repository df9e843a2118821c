/** indexSelect and embedding: select slices of an array with a list of indices. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { DeviceArray } from "../device-array.js";
import { eq, where } from "../elementwise/comparisons.js";
import { reshape } from "../movement/reshape.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { axisOf, badShape, formatShape, type Shape, sizeOf } from "../shape.js";
import { indexTypeAt, requireIndicesInside } from "./index-values.js";
import { copyIndexed } from "./indexed-copy.js";
import { lowerScatter } from "./scatter.js";

/** `isTrusted`: the library computed the indices, so they need no check. */
export type IndexSelectAttributes = { readonly axis: number; readonly isTrusted?: boolean };

/** The slices of an axis at a list of indices, in its order. */
export const indexSelect: KernelOp<IndexSelectAttributes> = {
  kind: "kernel",
  name: "indexSelect",
  infer(operands, { axis }) {
    const { shape, dtype } = typeAt("indexSelect", operands, 0);
    const index = indexTypeAt("indexSelect", operands, 1);
    if (index.shape.length !== 1) {
      throw badShape(
        "indexSelect",
        `an index of shape ${formatShape(index.shape)}; it must have one axis. For one index per element, use gather.`,
      );
    }
    return [{ shape: shape.with(axisOf("indexSelect", axis, shape.length), index.shape[0] ?? 0), dtype }];
  },
  check(lowering, operands, { axis, isTrusted = false }) {
    if (isTrusted) return;
    const { shape } = arrayAt(operands, 0);
    const indexedAxis = axisOf("indexSelect", axis, shape.length);
    const size = shape[indexedAxis] ?? 0;
    requireIndicesInside(
      lowering,
      arrayAt(operands, 1),
      size,
      `axis ${indexedAxis} of ${formatShape(shape)} has ${size}`,
    );
  },
  saves: () => ({ operands: [1] }),
  gradient(rule) {
    const { shape } = rule.typeOf(0);
    const axis = axisOf("indexSelect", rule.attributes.axis, shape.length);
    return [rule.apply(indexSelectGradient, [rule.upstream, rule.operand(1)], { shape, axis })];
  },
  lower(lowering, operands, [output], { axis }) {
    const [source, index] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output) return;
    const indexedAxis = axisOf("indexSelect", axis, source.shape.length);
    copyIndexed(lowering, {
      source,
      sourceStrides: source.strides.with(indexedAxis, 0),
      index,
      indexStrides: source.shape.map((_, axisOfSource) =>
        axisOfSource === indexedAxis ? (index.strides[0] ?? 0) : 0,
      ),
      step: source.strides[indexedAxis] ?? 0,
      length: source.shape[indexedAxis] ?? 0,
      output,
    });
  },
};

/** Adds the operand's slices to zeros at their indices. Slices of the index `skipped` are left out. */
const indexSelectGradient: KernelOp<{
  readonly shape: Shape;
  readonly axis: number;
  readonly skipped?: number;
}> = {
  kind: "kernel",
  name: "indexSelectGradient",
  saves: () => ({ operands: [1] }),
  gradient(rule) {
    const { axis, skipped } = rule.attributes;
    const index = rule.operand(1);
    const selected = rule.apply(indexSelect, [rule.upstream, index], { axis, isTrusted: true });
    if (skipped === undefined) return [selected];
    const rank = rule.typeOf(0).shape.length;
    const isSkipped = rule.apply(reshape, [rule.apply(eq, [index, skipped])], {
      shape: Array.from({ length: rank }, (_, other) => (other === axis ? -1 : 1)),
    });
    return [rule.apply(where, [isSkipped, 0, selected])];
  },
  infer: (operands, { shape }) => [{ shape, dtype: typeAt("indexSelectGradient", operands, 0).dtype }],
  lower(lowering, operands, [output], { axis, skipped }) {
    if (!output?.storage) return;
    const [source, indices] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const index = skipped === undefined ? indices : maskIndex(lowering, indices, skipped);
    lowerScatter(lowering, { target: output, axis, index, isIndexShared: true, source, overwrites: true });
  },
};

/** `paddingIdx`: the row of the table that gets no gradient. Negative indices count from the end. */
export type EmbeddingAttributes = { readonly paddingIdx?: number };

/** The row of a table [rows, width] for each index. The index may have any shape. */
export const embedding: KernelOp<EmbeddingAttributes> = {
  kind: "kernel",
  name: "embedding",
  infer(operands, attributes) {
    const { shape, dtype } = typeAt("embedding", operands, 0);
    const index = indexTypeAt("embedding", operands, 1);
    const [rows = 0, width = 0] = shape;
    if (shape.length !== 2) {
      throw badShape("embedding", `a table of shape ${formatShape(shape)}; it must be [rows, width].`);
    }
    paddingRow(rows, attributes);
    return [{ shape: [...index.shape, width], dtype }];
  },
  check(lowering, operands) {
    const [rows = 0] = arrayAt(operands, 0).shape;
    requireIndicesInside(lowering, arrayAt(operands, 1), rows, `the table has ${rows} rows`);
  },
  saves: () => ({ operands: [1] }),
  gradient(rule) {
    const { shape } = rule.typeOf(0);
    const count = sizeOf(rule.typeOf(1).shape);
    const skipped = paddingRow(shape[0] ?? 0, rule.attributes);
    const rows = rule.apply(reshape, [rule.upstream], { shape: [count, shape[1] ?? 0] });
    const index = rule.apply(reshape, [rule.operand(1)], { shape: [count] });
    return [
      rule.apply(indexSelectGradient, [rows, index], {
        shape,
        axis: 0,
        ...(skipped !== undefined && { skipped }),
      }),
    ];
  },
  lower(lowering, operands, [output]) {
    const [source, index] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    if (!output) return;
    const [rowStride = 0, columnStride = 0] = source.strides;
    copyIndexed(lowering, {
      source,
      sourceStrides: [...index.shape.map(() => 0), columnStride],
      index,
      indexStrides: [...index.strides, 0],
      step: rowStride,
      length: source.shape[0] ?? 0,
      output,
    });
  },
};

function paddingRow(rows: number, { paddingIdx }: EmbeddingAttributes): number | undefined {
  if (paddingIdx === undefined) return undefined;
  const row = paddingIdx < 0 ? paddingIdx + rows : paddingIdx;
  if (Number.isInteger(paddingIdx) && row >= 0 && row < rows) return row;
  throw new HoldfastError(
    "BAD_INDEX",
    `embedding: paddingIdx ${paddingIdx} of a table of ${rows} rows; valid rows are ${-rows} to ${rows - 1}.`,
    { numbers: { op: "embedding", index: paddingIdx, size: rows } },
  );
}

const skipKernels = new Map<Dtype, RowKernel>();

function skipKernel(dtype: Dtype): RowKernel {
  const index = term.index(0, dtype);
  const isSkipped = term.eq(index, term.scalar(0, "i32"));
  const kernel: RowKernel = skipKernels.get(dtype) ?? {
    name: "skip of an index",
    inputs: [dtype],
    outputs: [{ dtype: "i32", per: "element" }],
    scalars: ["i32"],
    stages: [{ kind: "store", output: 0, value: term.select(isSkipped, term.constant(-1, "i32"), index) }],
  };
  skipKernels.set(dtype, kernel);
  return kernel;
}

/** A copy of the indices with -1 for `skipped`: the scatter ignores indices outside its axis. */
function maskIndex(lowering: Lowering, index: DeviceArray, skipped: number): DeviceArray {
  const masked = lowering.scratchArray(index.shape, "i32");
  if (!index.storage || !masked.storage) return masked;
  lowering.row({
    kernel: skipKernel(index.dtype),
    iteration: iterateElements(index.shape, [index.strides, masked.strides]),
    operands: [index.storage, masked.storage],
    scalars: [skipped],
  });
  return masked;
}
