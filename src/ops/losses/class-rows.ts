/**
 * Shared by losses of class labels: the axis of the classes, the check of the labels, and the reduction of the rows' losses.
 * A row is one prediction, with a number for each class.
 */

import { HoldfastError } from "../../errors/index.js";
import {
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  iterateRows,
  type RowKernel,
  type Stage,
  type Strides,
  term,
  viewElements,
} from "../../ir/index.js";
import { broadcastStrides, type DeviceArray } from "../device-array.js";
import { asIndexList } from "../indexing/index-list.js";
import { areIndicesInside, indexTypeAt } from "../indexing/index-values.js";
import {
  arrayAt,
  type CheckContext,
  isType,
  type Lowering,
  type OperandType,
  typeAt,
  type ValueType,
} from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, isSameShape, type Shape, sizeOf } from "../shape.js";

/** The result: the mean of the losses, their sum, or each loss. */
export type LossReduction = "mean" | "sum" | "none";

export type ClassLossAttributes = {
  /** Rows with this label are left out of the loss. Default: -100. */
  readonly ignoreIndex?: number;
  readonly reduction?: LossReduction;
};

export const defaultIgnoreIndex = -100;

/** Predictions as rows: [kept…, classes]. */
export interface ClassRows {
  readonly kept: Shape;
  readonly classes: number;
  readonly shape: Shape;
  /** The input's axis of classes: 1, after the batch, or 0 without a batch. */
  readonly axis: number;
}

export function classRowsOf(input: Shape): ClassRows {
  const axis = input.length === 1 ? 0 : 1;
  const kept = input.toSpliced(axis, 1);
  const classes = input[axis] ?? 0;
  return { kept, classes, shape: [...kept, classes], axis };
}

/** An operand of a kernel over rows of classes, with one value per element, per row (or one for all rows), or per class. */
export interface ClassOperand {
  readonly array: DeviceArray;
  readonly per: "element" | "row" | "class";
}

export const perElement = (array: DeviceArray): ClassOperand => ({ array, per: "element" });
export const perRow = (array: DeviceArray): ClassOperand => ({ array, per: "row" });
export const perClass = (array: DeviceArray): ClassOperand => ({ array, per: "class" });

/** The stride from class to class. */
export function classStride({ strides }: DeviceArray, { axis }: ClassRows): number {
  return strides[axis] ?? 0;
}

function stridesOf({ array, per }: ClassOperand, { kept, axis }: ClassRows): Strides {
  const { strides } = array;
  if (per === "row") return [...broadcastStrides(array, kept), 0];
  if (per === "class") return [...kept.map(() => 0), strides[0] ?? 0];
  return [...strides.toSpliced(axis, 1), strides[axis] ?? 0];
}

/** Launches a kernel over the rows, for any axis of classes. `operands`: inputs, then outputs. */
export function launchClassRows(
  lowering: Lowering,
  rows: ClassRows,
  kernel: RowKernel,
  operands: readonly ClassOperand[],
  scalars: readonly number[] = [],
): void {
  lowering.row({
    kernel,
    iteration: iterateRows(
      rows.shape,
      operands.map((operand) => stridesOf(operand, rows)),
      1,
    ),
    operands: operands.flatMap(({ array }) => array.storage ?? []),
    scalars,
  });
}

/** The input's type, and its rows. Rejects operands that do not fit each other. */
export function inferClassRows(
  op: string,
  operands: readonly OperandType[],
): { readonly input: ValueType; readonly rows: ClassRows } {
  const [input, target] = [typeAt(op, operands, 0), indexTypeAt(op, operands, 1)];
  requireFloat(op, input.dtype);
  const rows = classRowsOf(input.shape);
  const { kept, classes } = rows;
  if (classes === 0) {
    throw badShape(
      op,
      `input ${formatShape(input.shape)} has no classes; it must be [C], [N, C] or [N, C, …].`,
    );
  }
  if (!isSameShape(target.shape, kept)) {
    throw badShape(
      op,
      `input ${formatShape(input.shape)} and target ${formatShape(target.shape)}: with ${classes} classes on axis ` +
        `${rows.axis} of the input, the target must be ${formatShape(kept)}.`,
    );
  }
  const weight = operands[2];
  if (isType(weight)) {
    requireFloat(op, weight.dtype);
    if (weight.shape.length !== 1 || weight.shape[0] !== classes) {
      throw badShape(op, `weight ${formatShape(weight.shape)}: it must be [${classes}], one for each class.`);
    }
  }
  return { input, rows };
}

export function requireSmoothing(op: string, labelSmoothing: number): void {
  if (labelSmoothing >= 0 && labelSmoothing <= 1) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${op}: labelSmoothing is ${labelSmoothing}; pass a number from 0 to 1.`,
    { numbers: { labelSmoothing } },
  );
}

/** Class weights are constants of a loss, not parameters. */
export function rejectWeightGradient(op: string): never {
  throw new HoldfastError("NO_GRADIENT", `${op} gives its class weights no gradient. detach() them.`, {
    numbers: { op },
  });
}

/** Rejects labels that are not a class: a kernel would read outside its row. */
export function checkLabels(
  context: CheckContext,
  operands: readonly (DeviceArray | number)[],
  { ignoreIndex = defaultIgnoreIndex }: ClassLossAttributes,
): void {
  const { classes } = classRowsOf(arrayAt(operands, 0).shape);
  const labels = arrayAt(operands, 1);
  const range = `there are ${classes} classes`;
  if (areIndicesInside(context, labels, { size: classes, ignored: ignoreIndex, range })) return;
  const { storage } = asIndexList(context, labels);
  const values = storage ? viewElements("i32", context.read(storage)) : new Int32Array(0);
  const row = values.findIndex((value) => value !== ignoreIndex && (value < 0 || value >= classes));
  const label = values[row] ?? 0;
  throw new HoldfastError(
    "BAD_INDEX",
    `${context.op}: the target of row ${row} is ${label}, but there are ${classes} classes, 0 to ${classes - 1}. Correct ` +
      `the label, or mark rows to ignore with ignoreIndex (${ignoreIndex}).`,
    { numbers: { op: context.op, row, label, classes } },
  );
}

/**
 * The terms of a row's label in a kernel: whether the row is counted, the index of its class, and its weight. A label that is not a
 * class makes the loss and its gradient NaN, and reads no memory outside: a compiled step can't reject it.
 */
export function labelTerms(
  compute: Compute,
  limits: { readonly ignored: Expression; readonly classes: Expression },
  weightAt: ((classIndex: Expression) => Expression) | undefined,
  label: Expression,
) {
  const isCounted = term.ne(label, limits.ignored);
  const isClass = term.min(term.ge(label, 0), term.lt(term.convert(label, compute), limits.classes));
  const classIndex = term.select(isClass, label, 0);
  const classWeight = weightAt ? term.convert(weightAt(classIndex), compute) : term.constant(1, compute);
  const validWeight = term.select(isClass, classWeight, term.constant(Number.NaN, compute));
  return {
    label,
    isCounted,
    classIndex,
    weight: term.select(isCounted, validWeight, term.constant(0, compute)),
  };
}

/** The results of a loss kernel for each row. */
export interface RowLosses {
  readonly losses: DeviceArray;
  /** Each row's weight in a mean. */
  readonly weights?: DeviceArray | undefined;
}

const totalKernels = new Map<string, RowKernel>();

/** The sum of the rows' losses, for a mean divided by the sum of their weights. Both sums are f64. */
function totalKernel(from: Dtype, to: Dtype, isMean: boolean): RowKernel {
  const key = `${from} ${to} ${isMean}`;
  const cached = totalKernels.get(key);
  if (cached) return cached;
  const { compute } = dtypes[to];
  const sumStage = (input: number): Stage => ({
    kind: "reduce",
    op: "add",
    value: term.convert(term.load(input, dtypes[from].compute), "f64"),
  });
  const total = term.reduced(0, "f64");
  const weight = term.reduced(1, "f64");
  const store = (output: number, value: typeof total, type: Compute): Stage => ({
    kind: "store",
    output,
    value: term.convert(value, type),
  });
  const kernel: RowKernel = isMean
    ? {
        name: "mean of losses",
        inputs: [from, from],
        outputs: [
          { dtype: to, per: "row" },
          { dtype: from, per: "row" },
        ],
        scalars: [],
        stages: [
          sumStage(0),
          sumStage(1),
          store(0, term.div(total, weight), compute),
          store(1, weight, dtypes[from].compute),
        ],
      }
    : {
        name: "sum of losses",
        inputs: [from],
        outputs: [{ dtype: to, per: "row" }],
        scalars: [],
        stages: [sumStage(0), store(0, total, compute)],
      };
  totalKernels.set(key, kernel);
  return kernel;
}

/** Reduces the rows' losses to one. `divisor` receives a mean's divisor. A mean of no rows is NaN, as in PyTorch. */
export function lowerTotal(
  lowering: Lowering,
  { losses, weights }: RowLosses,
  output: DeviceArray,
  divisor: DeviceArray | undefined,
): void {
  if (!losses.storage) {
    fillWith(lowering, output, divisor ? Number.NaN : 0);
    if (divisor) fillWith(lowering, divisor, 0);
    return;
  }
  const size = sizeOf(losses.shape);
  const [inputs, outputs] = [weights ? [losses, weights] : [losses], divisor ? [output, divisor] : [output]];
  lowering.row({
    kernel: totalKernel(losses.dtype, output.dtype, divisor !== undefined),
    iteration: iterateRows([size], [...inputs.map(() => [1]), ...outputs.map(() => [0])], 1),
    operands: [...inputs, ...outputs].flatMap(({ storage }) => storage ?? []),
  });
}
