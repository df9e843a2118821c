/**
 * What losses of class labels share: where the classes lie, the check of the labels, and how the rows' losses become
 * one. A row is one prediction: the numbers of all classes, of which one is the target's.
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
import { areInside, indexTypeAt } from "../indexing/index-values.js";
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

/** What becomes of the single losses: their mean, their sum, or each for itself. */
export type LossReduction = "mean" | "sum" | "none";

export type ClassLossAttributes = {
  /** Targets of this label don't count; -100 unless given. */
  readonly ignoreIndex?: number;
  readonly reduction?: LossReduction;
};

export const defaultIgnoreIndex = -100;

/** Predictions as rows: [kept…, classes]. */
export interface ClassRows {
  readonly kept: Shape;
  readonly classes: number;
  readonly shape: Shape;
  /** Where the classes lie in the input: behind the batch, or at once where there is none. */
  readonly axis: number;
}

export function classRowsOf(input: Shape): ClassRows {
  const axis = input.length === 1 ? 0 : 1;
  const kept = input.filter((_, place) => place !== axis);
  const classes = input[axis] ?? 0;
  return { kept, classes, shape: [...kept, classes], axis };
}

/** An operand of a kernel over rows of classes: it has one value an element, a row (or one for all), or a class. */
export interface ClassOperand {
  readonly array: DeviceArray;
  readonly per: "element" | "row" | "class";
}

export const perElement = (array: DeviceArray): ClassOperand => ({ array, per: "element" });
export const perRow = (array: DeviceArray): ClassOperand => ({ array, per: "row" });
export const perClass = (array: DeviceArray): ClassOperand => ({ array, per: "class" });

/** The step from class to class. */
export function classStep({ strides }: DeviceArray, { axis }: ClassRows): number {
  return strides[axis] ?? 0;
}

function stridesOf({ array, per }: ClassOperand, { kept, axis }: ClassRows): Strides {
  const { strides } = array;
  if (per === "row") return [...broadcastStrides(array, kept), 0];
  if (per === "class") return [...kept.map(() => 0), strides[0] ?? 0];
  return [...strides.filter((_, place) => place !== axis), strides[axis] ?? 0];
}

/** Runs a kernel over the rows, however the classes lie; the inputs first, then the outputs. */
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

/** Rejects operands that don't fit each other; what the input is, as rows. */
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
    `${op}: labelSmoothing is ${labelSmoothing}; give a number from 0 to 1.`,
    { numbers: { labelSmoothing } },
  );
}

/** Class weights say how much classes count, and are not learned. */
export function rejectWeightGradient(op: string): never {
  throw new HoldfastError("NO_GRADIENT", `${op} gives its class weights no gradient. detach() them.`, {
    numbers: { op },
  });
}

/** Rejects labels that are no class: a kernel would read outside its row. */
export function checkLabels(
  context: CheckContext,
  operands: readonly (DeviceArray | number)[],
  { ignoreIndex = defaultIgnoreIndex }: ClassLossAttributes,
): void {
  const { classes } = classRowsOf(arrayAt(operands, 0).shape);
  const labels = arrayAt(operands, 1);
  const range = `there are ${classes} classes`;
  if (areInside(context, labels, { size: classes, ignored: ignoreIndex, range })) return;
  const { storage } = asIndexList(context, labels);
  const values = storage ? viewElements("i32", context.read(storage)) : new Int32Array(0);
  const row = values.findIndex((one) => one !== ignoreIndex && (one < 0 || one >= classes));
  const label = values[row] ?? 0;
  throw new HoldfastError(
    "BAD_INDEX",
    `${context.op}: the target of row ${row} is ${label}, and there are ${classes} classes, 0 to ${classes - 1}. Correct ` +
      `the label, or mark rows that don't count with ignoreIndex (${ignoreIndex}).`,
    { numbers: { op: context.op, row, label, classes } },
  );
}

/**
 * A row's label in a kernel: whether it counts, where its class lies, and how much it counts. A label that is no class makes the
 * loss and its gradient NaN and reads nowhere: a compiled step can't reject it.
 */
export function labelTerms(
  compute: Compute,
  given: { readonly ignored: Expression; readonly classes: Expression },
  weightAt: ((place: Expression) => Expression) | undefined,
  label = term.load(1, "i32"),
) {
  const counts = term.ne(label, given.ignored);
  const isClass = term.min(term.ge(label, 0), term.lt(term.convert(label, compute), given.classes));
  const place = term.select(isClass, label, 0);
  const own = weightAt ? term.convert(weightAt(place), compute) : term.constant(1, compute);
  const ofClass = term.select(isClass, own, term.constant(Number.NaN, compute));
  return { label, counts, place, weight: term.select(counts, ofClass, term.constant(0, compute)) };
}

/** What a loss kernel's rows give, and where the result goes. */
export interface RowLosses {
  readonly losses: DeviceArray;
  /** How much each row counts in a mean. */
  readonly counts?: DeviceArray | undefined;
}

const finishers = new Map<string, RowKernel>();

/** The sum of the rows' losses, over the sum of their weights where those are there; both are added up in f64. */
function epilogueKernel(from: Dtype, to: Dtype, isMean: boolean): RowKernel {
  const key = `${from} ${to} ${isMean}`;
  const known = finishers.get(key);
  if (known) return known;
  const { compute } = dtypes[to];
  const sumReduction = (input: number): Stage => ({
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
          sumReduction(0),
          sumReduction(1),
          store(0, term.div(total, weight), compute),
          store(1, weight, dtypes[from].compute),
        ],
      }
    : {
        name: "sum of losses",
        inputs: [from],
        outputs: [{ dtype: to, per: "row" }],
        scalars: [],
        stages: [sumReduction(0), store(0, total, compute)],
      };
  finishers.set(key, kernel);
  return kernel;
}

/** The rows' losses as one; `divisor` gets what a mean is divided by. A mean of nothing is NaN, as in PyTorch. */
export function lowerTotal(
  lowering: Lowering,
  { losses, counts }: RowLosses,
  output: DeviceArray,
  divisor: DeviceArray | undefined,
): void {
  if (!losses.storage) {
    fillWith(lowering, output, divisor ? Number.NaN : 0);
    if (divisor) fillWith(lowering, divisor, 0);
    return;
  }
  const size = sizeOf(losses.shape);
  const [inputs, outputs] = [counts ? [losses, counts] : [losses], divisor ? [output, divisor] : [output]];
  lowering.row({
    kernel: epilogueKernel(losses.dtype, output.dtype, divisor !== undefined),
    iteration: iterateRows([size], [...inputs.map(() => [1]), ...outputs.map(() => [0])], 1),
    operands: [...inputs, ...outputs].flatMap(({ storage }) => storage ?? []),
  });
}
