/**
 * The row kernels of crossEntropy. A row's largest logit is subtracted before exp, and stored separately from the logarithm of the
 * sum, so that large logits lose no digits.
 */

import {
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  type RowKernel,
  type Stage,
  term,
} from "../../ir/index.js";
import { labelTerms } from "./class-rows.js";

/** Selects a kernel. All other numbers are scalars of the launch. */
export interface Variant {
  readonly input: Dtype;
  readonly target: Dtype;
  readonly weight: Dtype | undefined;
  readonly isSmoothed: boolean;
  readonly isMean: boolean;
}

/** The scalars of a launch of `forwardKernel` or `factorsKernel`, in order. */
export interface RowScalars {
  /** The label of rows that are left out of the loss. */
  readonly ignored: number;
  /** The strides from class to class in the logits and in the weights. */
  readonly classStride: number;
  readonly weightStride: number;
  /** The label's share of the target, and the share of every class. */
  readonly keep: number;
  readonly smoothed: number;
  readonly classes: number;
}

export function scalarsOf({
  ignored,
  classStride,
  weightStride,
  keep,
  smoothed,
  classes,
}: RowScalars): readonly number[] {
  return [ignored, classStride, weightStride, keep, smoothed, classes];
}

function scalarTypes(compute: Compute): readonly Compute[] {
  const float = compute;
  return ["i32", "i32", "i32", float, float, float];
}

function scalarTerms(compute: Compute) {
  const integerScalar = (index: number): Expression => term.scalar(index, "i32");
  const floatScalar = (index: number): Expression => term.scalar(index, compute);
  return {
    ...{ ignored: integerScalar(0), classStride: integerScalar(1), weightStride: integerScalar(2) },
    ...{ keep: floatScalar(3), smoothed: floatScalar(4), classes: floatScalar(5) },
  };
}

/** The terms of a row's label. */
function rowTerms(compute: Compute, target: Dtype, weight: Dtype | undefined, weightInput: number) {
  const { weightStride, ...limits } = scalarTerms(compute);
  const weightAt = (classIndex: Expression): Expression =>
    term.load(weightInput, weight ? dtypes[weight].compute : compute, term.mul(classIndex, weightStride));
  return labelTerms(compute, limits, weight && weightAt, term.index(1, target));
}

const kernels = new Map<string, RowKernel>();

function kernelOf(name: string, variant: Variant, more: string, make: () => RowKernel): RowKernel {
  const key = [name, ...Object.values(variant), more].join(" ");
  const kernel = kernels.get(key) ?? make();
  kernels.set(key, kernel);
  return kernel;
}

const store = (output: number, value: Expression): Stage => ({ kind: "store", output, value });
const sumStage = (value: Expression): Stage => ({ kind: "reduce", op: "add", value });

/**
 * Inputs: logits, target, weights. Outputs for each row: the loss, the largest logit, the logarithm of the sum of exponentials, and
 * for a mean the row's weight.
 */
export function forwardKernel(variant: Variant, loss: Dtype): RowKernel {
  const { input, target, weight, isSmoothed, isMean } = variant;
  return kernelOf("crossEntropy", variant, loss, () => {
    const { compute } = dtypes[input];
    const { classStride, keep, smoothed, classes } = scalarTerms(compute);
    const row = rowTerms(compute, target, weight, 2);
    const maxLogit = term.reduced(0, compute);
    const logSum = term.log(term.reduced(1, compute));
    const x = term.load(0, compute);
    const centred = term.sub(x, maxLogit);
    const targetLogit = term.load(0, compute, term.mul(row.classIndex, classStride));
    const unsmoothed = term.mul(row.weight, term.sub(logSum, term.sub(targetLogit, maxLogit)));
    const reductions: Stage[] = [{ kind: "reduce", op: "max", value: x }, sumStage(term.exp(centred))];
    let value = unsmoothed;
    if (isSmoothed) {
      const classWeight = weight && term.convert(term.load(2, dtypes[weight].compute), compute);
      reductions.push(
        sumStage(classWeight ? term.mul(classWeight, centred) : centred),
        ...(classWeight ? [sumStage(classWeight)] : []),
      );
      const weightedLogSum = term.mul(classWeight ? term.reduced(3, compute) : classes, logSum);
      const smoothedLoss = term.mul(smoothed, term.sub(weightedLogSum, term.reduced(2, compute)));
      value = term.add(term.mul(keep, unsmoothed), smoothedLoss);
    }
    return {
      name: "crossEntropy",
      inputs: [input, target, ...(weight ? [weight] : [])],
      outputs: [loss, compute, compute, ...(isMean ? [compute] : [])].map((dtype) => ({ dtype, per: "row" })),
      scalars: scalarTypes(compute),
      stages: [
        ...reductions,
        store(0, term.select(row.isCounted, value, term.constant(0, compute))),
        store(1, maxLogit),
        store(2, logSum),
        ...(isMean ? [store(3, row.weight)] : []),
      ],
    };
  });
}

/**
 * The factors of a row's gradient: of its probabilities, and with smoothing of the target and of every class. Inputs: the upstream
 * gradient, the target, for a mean its divisor, weights.
 */
export function factorsKernel(variant: Variant, upstream: Dtype): RowKernel {
  const { input, target, weight, isSmoothed, isMean } = variant;
  return kernelOf("crossEntropy shares", variant, upstream, () => {
    const { compute } = dtypes[input];
    const { keep, smoothed, classes } = scalarTerms(compute);
    const weightInput = isMean ? 3 : 2;
    const row = rowTerms(compute, target, weight, weightInput);
    const upstreamLoad = term.convert(term.load(0, dtypes[upstream].compute), compute);
    const scaledUpstream = isMean ? term.div(upstreamLoad, term.load(2, compute)) : upstreamLoad;
    const countedUpstream = term.select(row.isCounted, scaledUpstream, term.constant(0, compute));
    const targetFactor = term.mul(term.mul(countedUpstream, row.weight), keep);
    const classFactor = term.mul(countedUpstream, smoothed);
    const classWeight = weight && term.convert(term.load(weightInput, dtypes[weight].compute), compute);
    const probabilityFactor = term.add(
      targetFactor,
      term.mul(classFactor, classWeight ? term.reduced(0, compute) : classes),
    );
    const values = isSmoothed ? [probabilityFactor, targetFactor, classFactor] : [targetFactor];
    return {
      name: "crossEntropy shares",
      inputs: [upstream, target, ...(isMean ? [compute] : []), ...(weight ? [weight] : [])],
      outputs: values.map(() => ({ dtype: compute, per: "row" })),
      scalars: scalarTypes(compute),
      stages: [
        ...(isSmoothed && classWeight ? [sumStage(classWeight)] : []),
        ...values.map((value, output) => store(output, value)),
      ],
    };
  });
}

/** Inputs: logits, target, largest logits, logarithms of sums, then the factors, and with smoothing the weights. */
export function backwardKernel(variant: Variant): RowKernel {
  const { input, target, weight, isSmoothed } = variant;
  return kernelOf("crossEntropyGradient", variant, "", () => {
    const { compute } = dtypes[input];
    const load = (index: number): Expression => term.load(index, compute);
    const probability = term.exp(term.sub(term.sub(load(0), load(2)), load(3)));
    const probabilityFactor = load(4);
    const isTarget = term.eq(term.position, term.index(1, target));
    const targetTerm = term.select(
      isTarget,
      isSmoothed ? load(5) : probabilityFactor,
      term.constant(0, compute),
    );
    let value = term.sub(term.mul(probabilityFactor, probability), targetTerm);
    if (isSmoothed) {
      const classWeight = weight && term.convert(term.load(7, dtypes[weight].compute), compute);
      value = term.sub(value, classWeight ? term.mul(load(6), classWeight) : load(6));
    }
    return {
      name: "crossEntropyGradient",
      inputs: [
        ...[input, target, compute, compute, compute],
        ...(isSmoothed ? [compute, compute, ...(weight ? [weight] : [])] : []),
      ],
      outputs: [{ dtype: input, per: "element" }],
      scalars: [],
      // A row with a factor of 0 may hold any value, even NaN.
      stages: [store(0, term.select(term.eq(probabilityFactor, 0), term.constant(0, compute), value))],
    };
  });
}
