/**
 * The row kernels of crossEntropy. A row's largest logit is taken off before exp, and kept apart from the logarithm of
 * the sum, so that no digit is lost however large the logits are.
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

/** Which kernel: the rest comes with the launch. */
export interface Variant {
  readonly input: Dtype;
  readonly target: Dtype;
  readonly weight: Dtype | undefined;
  readonly isSmoothed: boolean;
  readonly isMean: boolean;
}

/** What a launch of `forwardKernel` or `sharesKernel` is given, in order. */
export interface RowNumbers {
  /** The label that does not count. */
  readonly ignored: number;
  /** The steps from class to class in the logits and in the weights. */
  readonly classStep: number;
  readonly weightStep: number;
  /** How much of the target is the label's, and how much goes to every class. */
  readonly keep: number;
  readonly spread: number;
  readonly classes: number;
}

export function scalarsOf({
  ignored,
  classStep,
  weightStep,
  keep,
  spread,
  classes,
}: RowNumbers): readonly number[] {
  return [ignored, classStep, weightStep, keep, spread, classes];
}

function scalarTypes(compute: Compute): readonly Compute[] {
  return ["i32", "i32", "i32", compute, compute, compute];
}

function scalarTerms(compute: Compute) {
  const ofPlaces = (index: number): Expression => term.scalar(index, "i32");
  const ofValues = (index: number): Expression => term.scalar(index, compute);
  return {
    ...{ ignored: ofPlaces(0), classStep: ofPlaces(1), weightStep: ofPlaces(2) },
    ...{ keep: ofValues(3), spread: ofValues(4), classes: ofValues(5) },
  };
}

/** What is known of a row by its label. */
function rowTerms(compute: Compute, weight: Dtype | undefined, weightInput: number) {
  const { weightStep, ...given } = scalarTerms(compute);
  const weightAt = (place: Expression): Expression =>
    term.load(weightInput, weight ? dtypes[weight].compute : compute, term.mul(place, weightStep));
  return labelTerms(compute, given, weight && weightAt);
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
 * Inputs: logits, target, weights. Outputs of each row: its loss, its largest logit, the logarithm of its sum, and for a
 * mean how much it counts.
 */
export function forwardKernel(variant: Variant, loss: Dtype): RowKernel {
  const { input, target, weight, isSmoothed, isMean } = variant;
  return kernelOf("crossEntropy", variant, loss, () => {
    const { compute } = dtypes[input];
    const { classStep, keep, spread, classes } = scalarTerms(compute);
    const row = rowTerms(compute, weight, 2);
    const largest = term.reduced(0, compute);
    const logSum = term.log(term.reduced(1, compute));
    const x = term.load(0, compute);
    const centred = term.sub(x, largest);
    const picked = term.load(0, compute, term.mul(row.place, classStep));
    const plain = term.mul(row.weight, term.sub(logSum, term.sub(picked, largest)));
    const reductions: Stage[] = [{ kind: "reduce", op: "max", value: x }, sumStage(term.exp(centred))];
    let value = plain;
    if (isSmoothed) {
      const each = weight && term.convert(term.load(2, dtypes[weight].compute), compute);
      reductions.push(sumStage(each ? term.mul(each, centred) : centred), ...(each ? [sumStage(each)] : []));
      const ofAll = term.mul(each ? term.reduced(3, compute) : classes, logSum);
      const toEvery = term.mul(spread, term.sub(ofAll, term.reduced(2, compute)));
      value = term.add(term.mul(keep, plain), toEvery);
    }
    return {
      name: "crossEntropy",
      inputs: [input, target, ...(weight ? [weight] : [])],
      outputs: [loss, compute, compute, ...(isMean ? [compute] : [])].map((dtype) => ({ dtype, per: "row" })),
      scalars: scalarTypes(compute),
      stages: [
        ...reductions,
        store(0, term.select(row.counts, value, term.constant(0, compute))),
        store(1, largest),
        store(2, logSum),
        ...(isMean ? [store(3, row.weight)] : []),
      ],
    };
  });
}

/**
 * What a row's gradient is made of: the factor of its probabilities, and with smoothing that of the target and that of
 * every class. Inputs: the upstream gradient, the target, for a mean its divisor, weights.
 */
export function sharesKernel(variant: Variant, upstream: Dtype): RowKernel {
  const { input, target, weight, isSmoothed, isMean } = variant;
  return kernelOf("crossEntropy shares", variant, upstream, () => {
    const { compute } = dtypes[input];
    const { keep, spread, classes } = scalarTerms(compute);
    const weightInput = isMean ? 3 : 2;
    const row = rowTerms(compute, weight, weightInput);
    const arriving = term.convert(term.load(0, dtypes[upstream].compute), compute);
    const share = isMean ? term.div(arriving, term.load(2, compute)) : arriving;
    const counted = term.select(row.counts, share, term.constant(0, compute));
    const own = term.mul(term.mul(counted, row.weight), keep);
    const toEvery = term.mul(counted, spread);
    const each = weight && term.convert(term.load(weightInput, dtypes[weight].compute), compute);
    const total = term.add(own, term.mul(toEvery, each ? term.reduced(0, compute) : classes));
    const values = isSmoothed ? [total, own, toEvery] : [own];
    return {
      name: "crossEntropy shares",
      inputs: [upstream, target, ...(isMean ? [compute] : []), ...(weight ? [weight] : [])],
      outputs: values.map(() => ({ dtype: compute, per: "row" })),
      scalars: scalarTypes(compute),
      stages: [
        ...(isSmoothed && each ? [sumStage(each)] : []),
        ...values.map((value, output) => store(output, value)),
      ],
    };
  });
}

/** Inputs: logits, target, largest logits, logarithms, then the shares, and with smoothing the weights. */
export function backwardKernel(variant: Variant): RowKernel {
  const { input, target, weight, isSmoothed } = variant;
  return kernelOf("crossEntropyGradient", variant, "", () => {
    const { compute } = dtypes[input];
    const at = (index: number): Expression => term.load(index, compute);
    const probability = term.exp(term.sub(term.sub(at(0), at(2)), at(3)));
    const total = at(4);
    const isTarget = term.eq(term.position, term.load(1, "i32"));
    const own = term.select(isTarget, isSmoothed ? at(5) : total, term.constant(0, compute));
    let value = term.sub(term.mul(total, probability), own);
    if (isSmoothed) {
      const each = weight && term.convert(term.load(7, dtypes[weight].compute), compute);
      value = term.sub(value, each ? term.mul(at(6), each) : at(6));
    }
    return {
      name: "crossEntropyGradient",
      inputs: [
        ...[input, target, compute, compute, compute],
        ...(isSmoothed ? [compute, compute, ...(weight ? [weight] : [])] : []),
      ],
      outputs: [{ dtype: input, per: "element" }],
      scalars: [],
      // The row of a share of 0 may hold anything, NaN too.
      stages: [store(0, term.select(term.eq(total, 0), term.constant(0, compute), value))],
    };
  });
}
