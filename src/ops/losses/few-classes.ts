/**
 * crossEntropy of a few classes: each class is an operand of its own, so that a row is one element with no loop in it. On a
 * GPU such a kernel becomes one with what makes the logits of a row, and with what takes their gradient.
 */

import {
  type Dtype,
  dtypes,
  type Expression,
  iterateElements,
  type RowKernel,
  term,
} from "../../ir/index.js";
import { broadcastStrides, type DeviceArray, extentOf } from "../device-array.js";
import type { Lowering } from "../op.js";
import { type ClassRows, classStep, labelTerms } from "./class-rows.js";
import type { Variant } from "./cross-entropy-kernels.js";

/** More would be more operands than one kernel holds beside its neighbours'. */
const maxClasses = 4;

/** Smoothing asks for the weights of all classes, and goes through them row by row. */
export function hasFewClasses({ classes }: ClassRows, { isSmoothed }: Variant): boolean {
  return classes <= maxClasses && !isSmoothed;
}

export interface FewClasses {
  readonly variant: Variant;
  readonly rows: ClassRows;
  readonly logits: DeviceArray;
  readonly target: DeviceArray;
  /** One array, or none. */
  readonly weights: readonly DeviceArray[];
  /** The label that does not count. */
  readonly ignored: number;
}

/** Each row's loss, its largest logit, the logarithm of its sum and, for a mean, how much it counts. */
export function lowerFewClasses(lowering: Lowering, given: FewClasses, made: readonly DeviceArray[]): void {
  const { variant, rows, logits, target, weights } = given;
  const kernel = forwardKernel(variant, rows.classes, made[0]?.dtype ?? logits.dtype);
  launchEach(lowering, given, kernel, [...classesOf(lowering, logits, rows), target], weights, made);
}

/** The logits' gradient. `ofRows`: the largest logits, the logarithms, the upstream gradient, and a mean's divisor. */
export function lowerFewClassesGradient(
  lowering: Lowering,
  given: FewClasses,
  ofRows: readonly DeviceArray[],
  output: DeviceArray,
): void {
  const { variant, rows, logits, target, weights } = given;
  const kernel = backwardKernel(variant, rows.classes, ofRows[2]?.dtype ?? logits.dtype);
  const inputs = [...classesOf(lowering, logits, rows), target, ...ofRows];
  launchEach(lowering, given, kernel, inputs, weights, classesOf(lowering, output, rows));
}

/** An array of logits as one of rows for each class. */
function classesOf(lowering: Lowering, array: DeviceArray, rows: ClassRows): readonly DeviceArray[] {
  const { dtype, storage } = array;
  const { bytes } = dtypes[dtype];
  const layout = { shape: rows.kept, strides: array.strides.filter((_, axis) => axis !== rows.axis) };
  return Array.from({ length: rows.classes }, (_, index) => ({
    ...layout,
    dtype,
    storage:
      storage && lowering.view(storage, index * classStep(array, rows) * bytes, extentOf(layout) * bytes),
  }));
}

/** Runs a kernel with one element for each row; weights stand where they begin, and are read at a label. */
function launchEach(
  lowering: Lowering,
  { rows: { kept }, ignored }: FewClasses,
  kernel: RowKernel,
  inputs: readonly DeviceArray[],
  weights: readonly DeviceArray[],
  outputs: readonly DeviceArray[],
): void {
  const along = (array: DeviceArray): readonly number[] => broadcastStrides(array, kept);
  lowering.row({
    kernel,
    iteration: iterateElements(kept, [
      ...inputs.map(along),
      ...weights.map(() => kept.map(() => 0)),
      ...outputs.map(along),
    ]),
    operands: [...inputs, ...weights, ...outputs].flatMap(({ storage }) => storage ?? []),
    scalars: [ignored, weights[0]?.strides[0] ?? 0],
  });
}

const kernels = new Map<string, RowKernel>();

function kernelOf(
  name: string,
  variant: Variant,
  more: readonly unknown[],
  make: () => RowKernel,
): RowKernel {
  const key = [name, ...Object.values(variant), ...more].join(" ");
  const kernel = kernels.get(key) ?? make();
  kernels.set(key, kernel);
  return kernel;
}

/** What is known of a row by its label; the inputs begin with the classes, and the label stands behind them. */
function rowTerms({ input, weight }: Variant, classes: number, weightInput: number) {
  const { compute } = dtypes[input];
  const weightAt = (place: Expression): Expression =>
    term.load(weightInput, weight ? dtypes[weight].compute : compute, term.mul(place, term.scalar(1, "i32")));
  const given = { ignored: term.scalar(0, "i32"), classes: term.constant(classes, compute) };
  return labelTerms(compute, given, weight && weightAt, term.load(classes, "i32"));
}

const numbersTo = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);

/** Neighbours first, as a row's elements are joined: (0 ∘ 1) ∘ (2 ∘ 3). */
function combineInPairs(
  values: readonly Expression[],
  join: (a: Expression, b: Expression) => Expression,
): Expression {
  const [first, second, ...rest] = values;
  if (!first) throw new Error("There is nothing to join.");
  if (!second) return first;
  const pair = join(first, second);
  return rest.length === 0 ? pair : join(pair, combineInPairs(rest, join));
}

function forwardKernel(variant: Variant, classes: number, loss: Dtype): RowKernel {
  return kernelOf("crossEntropy", variant, [classes, loss], () => {
    const { input, target, weight, isMean } = variant;
    const { compute } = dtypes[input];
    const row = rowTerms(variant, classes, classes + 1);
    const logits = numbersTo(classes).map((index) => term.load(index, compute));
    const largest = combineInPairs(logits, term.max);
    const exps = logits.map((logit) => term.exp(term.sub(logit, largest)));
    const logSum = term.log(combineInPairs(exps, term.add));
    const picked = logits.reduce((before, logit, index) =>
      term.select(term.eq(row.place, index), logit, before),
    );
    const value = term.mul(row.weight, term.sub(logSum, term.sub(picked, largest)));
    const values = [
      term.select(row.counts, value, term.constant(0, compute)),
      largest,
      logSum,
      ...(isMean ? [row.weight] : []),
    ];
    return {
      name: "crossEntropy",
      inputs: [...logits.map(() => input), target, ...(weight ? [weight] : [])],
      outputs: values.map((_, output) => ({ dtype: output === 0 ? loss : compute, per: "element" })),
      scalars: ["i32", "i32"],
      stages: values.map((one, output) => ({ kind: "store", output, value: one })),
    };
  });
}

function backwardKernel(variant: Variant, classes: number, upstream: Dtype): RowKernel {
  return kernelOf("crossEntropyGradient", variant, [classes, upstream], () => {
    const { input, target, weight, isMean } = variant;
    const { compute } = dtypes[input];
    const row = rowTerms(variant, classes, classes + (isMean ? 5 : 4));
    const ofRow = (index: number): Expression => term.load(classes + 1 + index, compute);
    const arriving = term.convert(term.load(classes + 3, dtypes[upstream].compute), compute);
    const share = isMean ? term.div(arriving, ofRow(3)) : arriving;
    const zero = term.constant(0, compute);
    const own = term.mul(term.select(row.counts, share, zero), row.weight);
    const values = numbersTo(classes).map((index) => {
      const probability = term.exp(term.sub(term.sub(term.load(index, compute), ofRow(0)), ofRow(1)));
      const ofTarget = term.select(term.eq(row.label, index), own, zero);
      const value = term.sub(term.mul(own, probability), ofTarget);
      // The row of a share of 0 may hold anything, NaN too.
      return term.select(term.eq(own, 0), zero, value);
    });
    return {
      name: "crossEntropyGradient",
      inputs: [
        ...values.map(() => input),
        ...[target, compute, compute, upstream],
        ...(isMean ? [compute] : []),
        ...(weight ? [weight] : []),
      ],
      outputs: values.map(() => ({ dtype: input, per: "element" })),
      scalars: ["i32", "i32"],
      stages: values.map((value, output) => ({ kind: "store", output, value })),
    };
  });
}
