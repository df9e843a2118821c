/**
 * An update rule: how an optimizer updates a parameter from its gradient, as formulas over the loop IR. Each becomes two
 * kernels. One counts the step and computes its numbers, in f64 on the device, so that a replayed step counts too. The
 * other passes once over parameters, gradients and moments, and updates them in place.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, type Expression, type RowKernel, term } from "../ir/index.js";

/** The inputs of a step's numbers; all f64. */
export interface StepTerms {
  readonly lr: Expression;
  readonly weightDecay: Expression;
  /** The step's number: 1 in the first step. */
  readonly t: Expression;
  setting(index: number): Expression;
}

/** The inputs of an element's update, in the type that the parameter computes in. */
export interface ElementTerms {
  readonly p: Expression;
  readonly g: Expression;
  moment(index: number): Expression;
  /** One of the step's numbers. */
  number(index: number): Expression;
  setting(index: number): Expression;
}

export interface UpdateRule {
  /** Rules with the same name have the same formulas and kernels. */
  readonly name: string;
  /** The state of each element between steps, in f32 or better; initially zero. */
  readonly moments: readonly string[];
  /** Constants passed at launch: the betas, eps. */
  readonly settings: readonly number[];
  /** Rows of a parameter stay unchanged in a step if their gradient is all zeros; their moments are not read. */
  readonly isSparse?: boolean;
  /** The numbers that all elements share in a step. */
  stepNumbers(terms: StepTerms): StepNumbers;
  newMoments(terms: ElementTerms): readonly Expression[];
  /** Uses the new moments. */
  newParameter(terms: ElementTerms): Expression;
}

/** A sparse rule has no weight decay: it would have to change every row in every step. */
export function requireDecayFits(owner: string, { isSparse }: UpdateRule, weightDecay: number): void {
  if (!isSparse || weightDecay === 0) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${owner}: weightDecay is ${weightDecay} in a sparse group, whose rows without a gradient stay unchanged. Set weightDecay: 0 for the group.`,
    { numbers: { weightDecay } },
  );
}

export const numbersPerStep = 3;
export type StepNumbers = readonly [Expression, Expression, Expression];

export type MomentDtype = "f32" | "f64";

/** The type of moments and numbers: f32 for half precision, which would round small changes away. */
export function momentDtype(dtype: Dtype): MomentDtype {
  return dtype === "f64" ? "f64" : "f32";
}

const stepKernels = new Map<string, RowKernel>();
const updateKernels = new Map<string, RowKernel>();

/** Inputs: lr, weight decay, t. Outputs: the step's numbers, then t. Scalars: the rule's settings. */
export function stepKernel(rule: UpdateRule, dtype: MomentDtype): RowKernel {
  const key = `${rule.name} ${dtype}`;
  const cached = stepKernels.get(key);
  if (cached) return cached;
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
    outputs: [...numbers.map(() => dtype), "f64" as const].map((outputDtype) => ({
      dtype: outputDtype,
      per: "element",
    })),
    scalars: rule.settings.map(() => "f64"),
    // t is stored last: the numbers depend on the old one.
    stages: [...numbers.map((number) => term.convert(number, dtype)), t].map((value, output) => ({
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
  const cached = updateKernels.get(key);
  if (cached) return cached;
  const compute = momentDtype(dtype);
  const moments = rule.moments.map(() => compute);
  const terms: ElementTerms = {
    p: term.load(0, compute),
    g: term.load(1, compute),
    moment: (index) => term.load(2 + index, compute),
    number: (index) => term.load(2 + moments.length + index, compute),
    setting: (index) => term.scalar(index, compute),
  };
  // p is stored last: the new moments may depend on the old p, and the new p depends on the new moments.
  const olds = [...moments.map((_, index) => terms.moment(index)), terms.p];
  const hasGradient = term.ne(term.reduced(0, "i32"), 0);
  const values = [...rule.newMoments(terms), rule.newParameter(terms)].map((value, index) =>
    rule.isSparse ? term.select(hasGradient, value, olds[index] ?? value) : value,
  );
  const kernel: RowKernel = {
    name: rule.name,
    inputs: [dtype, dtype, ...moments, ...Array.from({ length: numbersPerStep }, () => compute)],
    outputs: [...moments, dtype].map((type) => ({ dtype: type, per: "element" })),
    scalars: rule.settings.map(() => compute),
    stages: [
      ...(rule.isSparse ? [{ kind: "reduce", op: "max", value: term.ne(terms.g, 0) } as const] : []),
      ...values.map((value, output) => ({ kind: "store", output, value }) as const),
    ],
  };
  updateKernels.set(key, kernel);
  return kernel;
}
