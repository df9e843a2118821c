/**
 * Shared by normalisations over the last axes: their attributes, the rule for an optional weight and bias, and ops for the
 * gradients. The gradients of weight and bias are sums over all rows.
 */

import { HoldfastError } from "../../errors/index.js";
import { type ColumnKernel, type Dtype, dtypes, type Expression, type RowKernel } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { broadcastStrides, contiguousStrides, type DeviceArray, mergeAxes } from "../device-array.js";
import { arrayAt, type KernelOp, type Lowering, type OperandType, typeAt, type ValueType } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { badShape, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";

/**
 * `normalizedShape`: the sizes of the last axes, which form a row. Default: the weight's shape, or the last axis without a weight.
 * `eps` is added to the variance or the mean square, so that it is never 0.
 */
export type LastAxesAttributes = {
  readonly normalizedShape?: Shape;
  readonly eps?: number;
};

/** The operand's type, and the type of one value for each row, in the compute dtype. Rejects operands that do not fit. */
export function inferOverLast(
  op: string,
  operands: readonly OperandType[],
  attributes: LastAxesAttributes,
  maxOperands: number,
): { readonly elementType: ValueType; readonly rowType: ValueType } {
  const { shape, dtype } = typeAt(op, operands, 0);
  requireFloat(op, dtype);
  const weight = operands.length > 1 ? typeAt(op, operands, 1).shape : undefined;
  const normalizedShape = normalizedShapeOf(attributes, shape, weight);
  const first = shape.length - normalizedShape.length;
  const fits = first >= 0 && normalizedShape.length > 0 && isSameShape(shape.slice(first), normalizedShape);
  if (!fits) {
    throw badShape(
      op,
      `normalizedShape ${formatShape(normalizedShape)} of a tensor ${formatShape(shape)}; it has to be the sizes of its ` +
        `last axes, ${formatShape(shape.slice(-Math.max(1, normalizedShape.length)))} for instance.`,
    );
  }
  if (operands.length > maxOperands) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${op} takes at most ${maxOperands} operands, but got ${operands.length}.`,
    );
  }
  for (const [index, operandName] of ["weight", "bias"].entries()) {
    if (index + 1 >= operands.length) break;
    const type = typeAt(op, operands, index + 1);
    requireFloat(op, type.dtype);
    if (isSameShape(type.shape, normalizedShape)) continue;
    throw badShape(
      op,
      `the ${operandName} is ${formatShape(type.shape)}; it has to have normalizedShape ${formatShape(normalizedShape)}.`,
    );
  }
  return {
    elementType: { shape, dtype },
    rowType: {
      shape: shape.map((size, axis) => (axis < first ? size : 1)),
      dtype: dtypes[dtype].compute,
    },
  };
}

/** The sizes of a row's axes. `weight`: the weight's shape; undefined or empty without a weight. */
export function normalizedShapeOf(
  { normalizedShape }: LastAxesAttributes,
  shape: Shape,
  weight: Shape | undefined,
): Shape {
  return normalizedShape ?? (weight && weight.length > 0 ? weight : shape.slice(-1));
}

/** The indices of the normalised axes. */
export function lastAxes(shape: Shape, normalizedShape: Shape): number[] {
  return normalizedShape.map((_, index) => shape.length - normalizedShape.length + index);
}

/** `dtypes`: the results' dtypes. */
export type ColumnSumAttributes = { readonly normalizedShape: Shape; readonly dtypes: readonly Dtype[] };

/**
 * An op that sums `count` values over all rows in one pass, with an output for each. The operands broadcast to the first one's shape.
 * The values are expressions of the operands' elements, loaded in their compute dtypes.
 */
export function columnSumOp(
  name: string,
  count: number,
  values: (dtypes: readonly Dtype[]) => readonly Expression[],
): KernelOp<ColumnSumAttributes> {
  const kernelFor = cacheByDtypes((...operandDtypes): ColumnKernel => {
    const [outputs, inputs] = [operandDtypes.slice(0, count), operandDtypes.slice(count)];
    return { name, inputs, outputs, scalars: [], op: "add", values: values(inputs) };
  });
  return {
    kind: "kernel",
    name,
    noGradient: "a recorded gradient is composed of other ops",
    infer: (_, { normalizedShape: shape, dtypes }) => dtypes.map((dtype) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { normalizedShape }) {
      const { shape } = arrayAt(operands, 0);
      const arrays = operands.map((_, index) => arrayAt(operands, index));
      if (sizeOf(shape) === 0) {
        for (const output of outputs) fillWith(lowering, output, 0);
        return;
      }
      const firstRowAxis = shape.length - normalizedShape.length;
      const matrices = arrays.map((array) => asMatrix(lowering, array, shape, firstRowAxis));
      lowering.column({
        kernel: kernelFor(...[...outputs, ...arrays].map(({ dtype }) => dtype)),
        rows: sizeOf(shape.slice(0, firstRowAxis)),
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

/** An array broadcast to a shape, as [rows, columns]; a copy if its strides do not merge. */
function asMatrix(lowering: Lowering, array: DeviceArray, shape: Shape, firstRowAxis: number): Matrix {
  const strides = broadcastStrides(array, shape);
  const rows = mergeAxes({ shape: shape.slice(0, firstRowAxis), strides: strides.slice(0, firstRowAxis) });
  const columns = mergeAxes({ shape: shape.slice(firstRowAxis), strides: strides.slice(firstRowAxis) });
  if (rows && columns && (columns.size === 1 || columns.stride === 1 || columns.stride === 0)) {
    const column = columns.size > 1 && columns.stride === 0 ? "none" : "unit";
    return { storage: array.storage, row: rows.size === 1 ? 0 : rows.stride, column };
  }
  const copy = lowering.scratchArray(shape, array.dtype);
  copyArray(lowering, { ...array, shape, strides }, { ...copy, strides: contiguousStrides(shape) });
  return { storage: copy.storage, row: sizeOf(shape.slice(firstRowAxis)), column: "unit" };
}

/**
 * An op for the gradient of x, by a row kernel. Operands: the upstream gradient, x, `savedCount` values for each row, and the
 * optional weight. The kernel's scalar is 1 / columns.
 */
export function inputGradientOp(
  name: string,
  savedCount: number,
  kernelFor: (...dtypes: readonly Dtype[]) => RowKernel,
): KernelOp<{ readonly normalizedShape: Shape }> {
  return {
    kind: "kernel",
    name,
    noGradient: "a recorded gradient is composed of other ops",
    infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { normalizedShape }) {
      const inputs = operands.map((_, index) => arrayAt(operands, index));
      const { shape, dtype } = arrayAt(operands, 1);
      lowerRows(lowering, {
        kernel: kernelFor(dtype, ...inputs.slice(2 + savedCount).map((weight) => weight.dtype)),
        shape,
        axes: lastAxes(shape, normalizedShape),
        inputs,
        outputs,
        scalars: [1 / sizeOf(normalizedShape)],
      });
    },
  };
}
