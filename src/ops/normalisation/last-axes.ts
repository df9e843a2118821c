/**
 * What normalisations over the last axes share: which axes those are, a weight and a bias of their shape, and the
 * gradients of these two, which are sums over all rows, from the first to the last.
 */

import { HoldfastError } from "../../errors/index.js";
import { type ColumnKernel, type Dtype, dtypes, type Expression, type RowKernel } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { broadcastStrides, contiguousStrides, type DeviceArray, joinAxes } from "../device-array.js";
import { arrayAt, type KernelOp, type Lowering, type OperandType, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { forDtypes, passRows } from "../row-pass.js";
import { badShape, formatShape, type Shape, sizeOf } from "../shape.js";

/**
 * `normalizedShape`: the sizes of the last axes, which make a row; the weight's shape unless given, or the last axis where
 * there is no weight. `eps` keeps a row's spread from being 0.
 */
export type LastAxesAttributes = {
  readonly normalizedShape?: Shape;
  readonly eps?: number;
};

/** The operand's type, and of one value for each row, in what its dtype computes in. Rejects what does not fit. */
export function inferOverLast(
  op: string,
  operands: readonly OperandType[],
  attributes: LastAxesAttributes,
  most: number,
): { readonly whole: ValueType; readonly ofRow: ValueType } {
  const { shape, dtype } = typeAt(op, operands, 0);
  requireFloat(op, dtype);
  const weight = operands.length > 1 ? typeAt(op, operands, 1).shape : undefined;
  const normalizedShape = normalizedShapeOf(attributes, shape, weight);
  const first = shape.length - normalizedShape.length;
  const fits = first >= 0 && normalizedShape.length > 0 && sameShape(shape.slice(first), normalizedShape);
  if (!fits) {
    throw badShape(
      op,
      `normalizedShape ${formatShape(normalizedShape)} of a tensor ${formatShape(shape)}; it has to be the sizes of its ` +
        `last axes, ${formatShape(shape.slice(-Math.max(1, normalizedShape.length)))} for instance.`,
    );
  }
  if (operands.length > most) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${op} takes at most ${most} operands, and was given ${operands.length}.`,
    );
  }
  for (const [index, what] of ["weight", "bias"].entries()) {
    if (index + 1 >= operands.length) break;
    const own = typeAt(op, operands, index + 1);
    requireFloat(op, own.dtype);
    if (sameShape(own.shape, normalizedShape)) continue;
    throw badShape(
      op,
      `the ${what} is ${formatShape(own.shape)}; it has to have normalizedShape ${formatShape(normalizedShape)}.`,
    );
  }
  return {
    whole: { shape, dtype },
    ofRow: {
      shape: shape.map((size, axis) => (axis < first ? size : 1)),
      dtype: dtypes[dtype].compute,
    },
  };
}

/** What a row is made of; `weight` is the weight's shape, undefined or of no axes where there is none. */
export function normalizedShapeOf(
  { normalizedShape }: LastAxesAttributes,
  shape: Shape,
  weight: Shape | undefined,
): Shape {
  return normalizedShape ?? (weight && weight.length > 0 ? weight : shape.slice(-1));
}

/** The last axes by their places. */
export function lastAxes(shape: Shape, normalizedShape: Shape): number[] {
  return normalizedShape.map((_, index) => shape.length - normalizedShape.length + index);
}

/** `dtypes`: those of the weight and the bias, or of the one, whose gradients they are. */
export type RowSumAttributes = { readonly normalizedShape: Shape; readonly dtypes: readonly Dtype[] };

/**
 * Adds up `count` values over all rows, in one pass: an output each. The operands stretch to the first's shape, and the
 * values are made of their elements' loads, each in what its dtype computes in.
 */
export function lowerBiasGradient(
  name: string,
  count: number,
  values: (dtypes: readonly Dtype[]) => readonly Expression[],
): KernelOp<RowSumAttributes> {
  const kernelFor = forDtypes((...all): ColumnKernel => {
    const [outputs, inputs] = [all.slice(0, count), all.slice(count)];
    return { name, inputs, outputs, scalars: [], op: "add", values: values(inputs) };
  });
  return {
    kind: "kernel",
    name,
    noGradient: "gradients of gradients are not recorded",
    infer: (_, { normalizedShape: shape, dtypes }) => dtypes.map((dtype) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { normalizedShape }) {
      const { shape } = arrayAt(operands, 0);
      const arrays = operands.map((_, index) => arrayAt(operands, index));
      if (sizeOf(shape) === 0) {
        for (const output of outputs) fillWith(lowering, output, 0);
        return;
      }
      const cut = shape.length - normalizedShape.length;
      const matrices = arrays.map((array) => asMatrix(lowering, array, shape, cut));
      lowering.column({
        kernel: kernelFor(...[...outputs, ...arrays].map(({ dtype }) => dtype)),
        rows: sizeOf(shape.slice(0, cut)),
        columns: sizeOf(normalizedShape),
        strides: matrices,
        operands: [...matrices, ...outputs].flatMap(({ storage }) => storage ?? []),
      });
    },
  };
}

interface Matrix {
  readonly storage: DeviceArray["storage"];
  readonly row: number;
  readonly column: "unit" | "none";
}

/** An array stretched to a shape and seen as [rows, columns]; copied where its memory does not allow that. */
function asMatrix(lowering: Lowering, array: DeviceArray, shape: Shape, cut: number): Matrix {
  const strides = broadcastStrides(array, shape);
  const down = joinAxes({ shape: shape.slice(0, cut), strides: strides.slice(0, cut) });
  const across = joinAxes({ shape: shape.slice(cut), strides: strides.slice(cut) });
  if (down && across && (across.size === 1 || across.stride === 1 || across.stride === 0)) {
    const column = across.size > 1 && across.stride === 0 ? "none" : "unit";
    return { storage: array.storage, row: down.size === 1 ? 0 : down.stride, column };
  }
  const copy = lowering.scratchArray(shape, array.dtype);
  copyArray(lowering, { ...array, shape, strides }, { ...copy, strides: contiguousStrides(shape) });
  return { storage: copy.storage, row: sizeOf(shape.slice(cut)), column: "unit" };
}

function sameShape(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((size, axis) => size === b[axis]);
}

/**
 * The gradient of x, by a row kernel: operands are the upstream gradient, x, `saved` values for each row and, where given,
 * the weight. The kernel's scalar is 1 / columns.
 */
export function rowGradient(
  name: string,
  saved: number,
  kernelFor: (...dtypes: readonly Dtype[]) => RowKernel,
): KernelOp<{ readonly normalizedShape: Shape }> {
  return {
    kind: "kernel",
    name,
    noGradient: "gradients of gradients are not recorded",
    infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { normalizedShape }) {
      const inputs = operands.map((_, index) => arrayAt(operands, index));
      const { shape, dtype } = arrayAt(operands, 1);
      passRows(lowering, {
        kernel: kernelFor(dtype, ...inputs.slice(2 + saved).map((weight) => weight.dtype)),
        shape,
        axes: lastAxes(shape, normalizedShape),
        inputs,
        outputs,
        scalars: [1 / sizeOf(normalizedShape)],
      });
    },
  };
}
