/**
 * An update rule: how an optimizer changes a parameter by its gradient, as formulas over the loop IR. Each is printed
 * as two kernels: one that counts the step and works out its numbers, in f64 and on the device, so that a replayed
 * step counts too; and one that passes once over parameters, gradients and moments, and writes them where they stand.
 */

import { type Dtype, type Expression, type RowKernel, term } from "../ir/index.js";

/** What a step's numbers follow from; all f64. */
export interface StepTerms {
  readonly lr: Expression;
  readonly weightDecay: Expression;
  /** The step's number: 1 in the first one. */
  readonly t: Expression;
  setting(index: number): Expression;
}

/** What an element's update follows from; all in the type that the parameter computes in. */
export interface ElementTerms {
  readonly p: Expression;
  readonly g: Expression;
  moment(index: number): Expression;
  /** One of the step's numbers. */
  number(index: number): Expression;
  setting(index: number): Expression;
}

export interface UpdateRule {
  /** Rules of one name have the same formulas, and so the same kernels. */
  readonly name: string;
  /** What is kept of each element between steps, in f32 or better; zero at first. */
  readonly moments: readonly string[];
  /** Numbers that never change, given at the launch: the betas, eps. */
  readonly settings: readonly number[];
  /** What all elements share in a step. */
  stepNumbers(terms: StepTerms): StepNumbers;
  newMoments(terms: ElementTerms): readonly Expression[];
  /** Here the moments are the new ones. */
  newParameter(terms: ElementTerms): Expression;
}

export const numbersPerStep = 3;
export type StepNumbers = readonly [Expression, Expression, Expression];

export type Wide = "f32" | "f64";

/** What moments and numbers are kept in: f32 for half floats, which would round a small change away. */
export function wideOf(dtype: Dtype): Wide {
  return dtype === "f64" ? "f64" : "f32";
}

const stepKernels = new Map<string, RowKernel>();
const updateKernels = new Map<string, RowKernel>();

/** Inputs: lr, weight decay, t. Outputs: the step's numbers, then t. Scalars: the rule's settings. */
export function stepKernel(rule: UpdateRule, wide: Wide): RowKernel {
  const key = `${rule.name} ${wide}`;
  const known = stepKernels.get(key);
  if (known) return known;
  const t = term.add(term.load(2, "f64"), 1);
  const numbers = rule.stepNumbers({
    lr: term.load(0, "f64"),
    weightDecay: term.load(1, "f64"),
    t,
    setting: (index) => term.scalar(index, "f64"),
  });
  const kernel: RowKernel = {
    name: `${rule.name} step`,
    inputs: ["f64", "f64", "f64"],
    outputs: [...numbers.map(() => wide), "f64" as const].map((dtype) => ({ dtype, per: "element" })),
    scalars: rule.settings.map(() => "f64"),
    // t is stored last: the numbers are made of the old one.
    stages: [...numbers.map((number) => term.convert(number, wide)), t].map((value, output) => ({
      kind: "store",
      output,
      value,
    })),
  };
  stepKernels.set(key, kernel);
  return kernel;
}

/** Inputs: p, g, the moments, the step's numbers. Outputs, in the inputs' memory: the moments, then p. */
export function updateKernel(rule: UpdateRule, dtype: Dtype): RowKernel {
  const key = `${rule.name} ${dtype}`;
  const known = updateKernels.get(key);
  if (known) return known;
  const wide = wideOf(dtype);
  const moments = rule.moments.map(() => wide);
  const terms: ElementTerms = {
    p: term.load(0, wide),
    g: term.load(1, wide),
    moment: (index) => term.load(2 + index, wide),
    number: (index) => term.load(2 + moments.length + index, wide),
    setting: (index) => term.scalar(index, wide),
  };
  // p is stored last: the new moments may follow from the old p, and the new p follows from the new moments, which it
  // reads where they have just been written.
  const values = [...rule.newMoments(terms), rule.newParameter(terms)];
  const kernel: RowKernel = {
    name: rule.name,
    inputs: [dtype, dtype, ...moments, ...Array.from({ length: numbersPerStep }, () => wide)],
    outputs: [...moments, dtype].map((one) => ({ dtype: one, per: "element" })),
    scalars: rule.settings.map(() => wide),
    stages: values.map((value, output) => ({ kind: "store", output, value })),
  };
  updateKernels.set(key, kernel);
  return kernel;
}
