/**
 * crossEntropy of a few classes. Each class is a separate operand, so a row is one element without a loop. On a GPU such a kernel
 * fuses with the kernel that computes the logits, and with the kernel that reads their gradient.
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
import { maxSkinny } from "../matmul/skinny-gemm.js";
import type { Lowering } from "../op.js";
import { type ClassRows, classStride, labelTerms } from "./class-rows.js";
import type { Variant } from "./cross-entropy-kernels.js";

/**
 * A linear layer of so many outputs is a skinny GEMM: a row kernel, with which this one fuses. With more classes the logits come
 * from a GEMM kernel, and there is nothing to fuse with.
 */
const maxClasses = maxSkinny;

/** True if each class can be an operand. Smoothing reads the weights of all classes in every row, so it takes the row kernel. */
export function hasFewClasses({ classes }: ClassRows, { isSmoothed }: Variant): boolean {
  return classes <= maxClasses && !isSmoothed;
}

export interface FewClassesInputs {
  readonly variant: Variant;
  readonly rows: ClassRows;
  readonly logits: DeviceArray;
  readonly target: DeviceArray;
  /** Empty without class weights; otherwise one array. */
  readonly weights: readonly DeviceArray[];
  /** The label of rows that are left out of the loss. */
  readonly ignored: number;
}

/** Outputs for each row: the loss, the largest logit, the logarithm of the sum of exponentials and, for a mean, the row's weight. */
export function lowerFewClasses(
  lowering: Lowering,
  inputs: FewClassesInputs,
  outputs: readonly DeviceArray[],
): void {
  const { variant, rows, logits, target, weights } = inputs;
  const kernel = forwardKernel(variant, rows.classes, outputs[0]?.dtype ?? logits.dtype);
  launchPerRow(lowering, inputs, kernel, [...classesOf(lowering, logits, rows), target], weights, outputs);
}

/** The logits' gradient. `rowInputs`: the largest logits, the logarithms, the upstream gradient, and a mean's divisor. */
export function lowerFewClassesGradient(
  lowering: Lowering,
  inputs: FewClassesInputs,
  rowInputs: readonly DeviceArray[],
  output: DeviceArray,
): void {
  const { variant, rows, logits, target, weights } = inputs;
  const kernel = backwardKernel(variant, rows.classes, rowInputs[2]?.dtype ?? logits.dtype);
  const kernelInputs = [...classesOf(lowering, logits, rows), target, ...rowInputs];
  launchPerRow(lowering, inputs, kernel, kernelInputs, weights, classesOf(lowering, output, rows));
}

/** Views of an array of logits: one array of rows for each class. */
function classesOf(lowering: Lowering, array: DeviceArray, rows: ClassRows): readonly DeviceArray[] {
  const { dtype, storage } = array;
  const { bytes } = dtypes[dtype];
  const layout = { shape: rows.kept, strides: array.strides.filter((_, axis) => axis !== rows.axis) };
  return Array.from({ length: rows.classes }, (_, index) => ({
    ...layout,
    dtype,
    storage:
      storage && lowering.view(storage, index * classStride(array, rows) * bytes, extentOf(layout) * bytes),
  }));
}

/** Launches a kernel with one element for each row. Weights have strides of 0: the kernel indexes them with the label. */
function launchPerRow(
  lowering: Lowering,
  { rows: { kept }, ignored }: FewClassesInputs,
  kernel: RowKernel,
  inputs: readonly DeviceArray[],
  weights: readonly DeviceArray[],
  outputs: readonly DeviceArray[],
): void {
  const rowStrides = (array: DeviceArray): readonly number[] => broadcastStrides(array, kept);
  lowering.row({
    kernel,
    iteration: iterateElements(kept, [
      ...inputs.map(rowStrides),
      ...weights.map(() => kept.map(() => 0)),
      ...outputs.map(rowStrides),
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

/** The terms of a row's label. The inputs begin with the classes; the label is next. */
function rowTerms({ input, target, weight }: Variant, classes: number, weightInput: number) {
  const { compute } = dtypes[input];
  const weightAt = (classIndex: Expression): Expression =>
    term.load(
      weightInput,
      weight ? dtypes[weight].compute : compute,
      term.mul(classIndex, term.scalar(1, "i32")),
    );
  const limits = { ignored: term.scalar(0, "i32"), classes: term.constant(classes, compute) };
  return labelTerms(compute, limits, weight && weightAt, term.index(classes, target));
}

const indicesTo = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);

/** Neighbours first, in the order of a row reduction: (0 ∘ 1) ∘ (2 ∘ 3). */
function combineInPairs(
  values: readonly Expression[],
  combine: (a: Expression, b: Expression) => Expression,
): Expression {
  const [first, second, ...rest] = values;
  if (!first) throw new Error("There are no values to combine.");
  if (!second) return first;
  const pair = combine(first, second);
  return rest.length === 0 ? pair : combine(pair, combineInPairs(rest, combine));
}

function forwardKernel(variant: Variant, classes: number, loss: Dtype): RowKernel {
  return kernelOf("crossEntropy", variant, [classes, loss], () => {
    const { input, target, weight, isMean } = variant;
    const { compute } = dtypes[input];
    const row = rowTerms(variant, classes, classes + 1);
    const logits = indicesTo(classes).map((index) => term.load(index, compute));
    const maxLogit = combineInPairs(logits, term.max);
    const exps = logits.map((logit) => term.exp(term.sub(logit, maxLogit)));
    const logSum = term.log(combineInPairs(exps, term.add));
    const targetLogit = logits.reduce((selected, logit, index) =>
      term.select(term.eq(row.classIndex, index), logit, selected),
    );
    const value = term.mul(row.weight, term.sub(logSum, term.sub(targetLogit, maxLogit)));
    const values = [
      term.select(row.isCounted, value, term.constant(0, compute)),
      maxLogit,
      logSum,
      ...(isMean ? [row.weight] : []),
    ];
    return {
      name: "crossEntropy",
      inputs: [...logits.map(() => input), target, ...(weight ? [weight] : [])],
      outputs: values.map((_, output) => ({ dtype: output === 0 ? loss : compute, per: "element" })),
      scalars: ["i32", "i32"],
      stages: values.map((rowValue, output) => ({ kind: "store", output, value: rowValue })),
    };
  });
}

function backwardKernel(variant: Variant, classes: number, upstream: Dtype): RowKernel {
  return kernelOf("crossEntropyGradient", variant, [classes, upstream], () => {
    const { input, target, weight, isMean } = variant;
    const { compute } = dtypes[input];
    const row = rowTerms(variant, classes, classes + (isMean ? 5 : 4));
    const loadRowInput = (index: number): Expression => term.load(classes + 1 + index, compute);
    const upstreamLoad = term.convert(term.load(classes + 3, dtypes[upstream].compute), compute);
    const scaledUpstream = isMean ? term.div(upstreamLoad, loadRowInput(3)) : upstreamLoad;
    const zero = term.constant(0, compute);
    const factor = term.mul(term.select(row.isCounted, scaledUpstream, zero), row.weight);
    const values = indicesTo(classes).map((index) => {
      const probability = term.exp(
        term.sub(term.sub(term.load(index, compute), loadRowInput(0)), loadRowInput(1)),
      );
      const targetTerm = term.select(term.eq(row.label, index), factor, zero);
      const value = term.sub(term.mul(factor, probability), targetTerm);
      // A row with a factor of 0 may hold any value, even NaN.
      return term.select(term.eq(factor, 0), zero, value);
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
