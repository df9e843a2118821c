/**
 * An update rule: how an optimizer updates a parameter from its gradient, as formulas over the loop IR. Each becomes two
 * kernels. One counts the step and computes its numbers, in f64 on the device, so that a replayed step counts too. The
 * other passes once over parameters, gradients and moments, and updates them in place.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, type Expression, type RowKernel, term } from "../ir/index.js";
import type { Tensor } from "../tensor/index.js";

/** The inputs of a step's numbers; all f64. */
export interface StepTerms {
  readonly lr: Expression;
  readonly weightDecay: Expression;
  /** The step's number: 1 in the first step. */
  readonly t: Expression;
  /** A carried number before the step; 0 before the first one. */
  carried(index: number): Expression;
  setting(index: number): Expression;
}

/** The inputs of an element's update, in the type that the parameter computes in. */
export interface ElementTerms {
  readonly p: Expression;
  readonly g: Expression;
  /** A moment: its old value, or its new one in the assignments after its own. The same holds for `p`. */
  moment(index: number): Expression;
  /** One of the step's numbers. */
  number(index: number): Expression;
  setting(index: number): Expression;
}

/** A parameter's gradient and its first moment as tensors. */
export interface DirectionInputs {
  readonly gradient: Tensor;
  readonly momentum: Tensor;
}

/** A new value for the parameter, or for a moment by its index. */
export type Assignment = readonly [target: "p" | number, value: Expression];

export interface UpdateRule {
  readonly name: string;
  /** Rules with the same key have the same formulas and kernels. Default: the name. */
  readonly key?: string;
  /** A parameter of 0 without a gradient may change: the padding between parameters must not be updated. */
  readonly changesPadding?: boolean;
  /** The state of each element between steps, in f32 or better; initially zero. */
  readonly moments: readonly string[];
  /** Constants passed at launch: the betas, eps. */
  readonly settings: readonly number[];
  /** Rows of a parameter stay unchanged in a step if their gradient is all zeros; their moments are not read. */
  readonly isSparse?: boolean;
  /** The rule reads the parameter and assigns only moments; it needs no gradient. */
  readonly keepsParameter?: boolean;
  /**
   * Replaces the gradient, by ops that also update the only moment, which the rule then does not assign: for updates that are not
   * elementwise. Every parameter has its own launches.
   */
  direction?(inputs: DirectionInputs): Tensor;
  /** Numbers that a step computes from those of the step before, in f64: part of the state, by these names. */
  readonly carried?: readonly string[];
  /** Their values after the step. */
  newCarried?(terms: StepTerms): readonly Expression[];
  /** The names of the numbers that all elements share in a step. */
  readonly numbers: readonly string[];
  stepNumbers(terms: StepTerms): readonly Expression[];
  /** One assignment for each moment and one for the parameter, if it is not kept, in the order in which they are made. */
  update(terms: ElementTerms): readonly Assignment[];
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

export type MomentDtype = "f32" | "f64";

/** The type of moments and numbers: f32 for half precision, which would round small changes away. */
export function momentDtype(dtype: Dtype): MomentDtype {
  return dtype === "f64" ? "f64" : "f32";
}

const stepKernels = new Map<string, RowKernel>();
const updateKernels = new Map<string, RowKernel>();

/** Inputs: lr, weight decay, t, the carried numbers. Outputs: the step's numbers, the carried numbers, t. Scalars: the rule's settings. */
export function stepKernel(rule: UpdateRule, dtype: MomentDtype): RowKernel {
  const key = `${rule.key ?? rule.name} ${dtype}`;
  const cached = stepKernels.get(key);
  if (cached) return cached;
  const t = term.add(term.load(2, "f64"), 1);
  const terms: StepTerms = {
    lr: term.load(0, "f64"),
    weightDecay: term.load(1, "f64"),
    t,
    carried: (index) => term.load(3 + index, "f64"),
    setting: (index) => term.scalar(index, "f64"),
  };
  const numbers = rule.stepNumbers(terms).map((number) => term.convert(number, dtype));
  const carried = rule.newCarried?.(terms) ?? [];
  const outputs = [...numbers.map(() => dtype), ...carried.map(() => "f64" as const), "f64" as const];
  const kernel: RowKernel = {
    name: `${rule.name} step`,
    inputs: ["f64", "f64", "f64", ...carried.map(() => "f64" as const)],
    outputs: outputs.map((outputDtype) => ({ dtype: outputDtype, per: "element" })),
    scalars: rule.settings.map(() => "f64"),
    // t is stored last, and the carried numbers before it: the numbers depend on the old ones.
    stages: [...numbers, ...carried, t].map((value, output) => ({ kind: "store", output, value })),
  };
  stepKernels.set(key, kernel);
  return kernel;
}

/** The moments that the rule's kernel updates. */
export function assignedMoments({ moments, direction }: UpdateRule): readonly string[] {
  return direction ? [] : moments;
}

/** Inputs: p, g, the moments, the step's numbers. Outputs, in the inputs' memory: the moments, then p. A rule that keeps p has no g, and p is no output. */
export function updateKernel(rule: UpdateRule, dtype: Dtype): RowKernel {
  const key = `${rule.key ?? rule.name} ${dtype}`;
  const cached = updateKernels.get(key);
  if (cached) return cached;
  const compute = momentDtype(dtype);
  const moments = assignedMoments(rule).map(() => compute);
  const written = rule.keepsParameter ? [] : [dtype];
  const firstMoment = 1 + written.length;
  const terms: ElementTerms = {
    p: term.load(0, compute),
    g: term.load(firstMoment - 1, compute),
    moment: (index) => term.load(firstMoment + index, compute),
    number: (index) => term.load(firstMoment + moments.length + index, compute),
    setting: (index) => term.scalar(index, compute),
  };
  const hasGradient = term.ne(term.reduced(0, "i32"), 0);
  const stores = rule.update(terms).map(([target, value]) => {
    const old = target === "p" ? terms.p : terms.moment(target);
    return {
      kind: "store",
      output: target === "p" ? moments.length : target,
      value: rule.isSparse ? term.select(hasGradient, value, old) : value,
    } as const;
  });
  const kernel: RowKernel = {
    name: rule.name,
    inputs: [dtype, ...written, ...moments, ...rule.numbers.map(() => compute)],
    outputs: [...moments, ...written].map((type) => ({ dtype: type, per: "element" })),
    scalars: rule.settings.map(() => compute),
    stages: [
      ...(rule.isSparse ? [{ kind: "reduce", op: "max", value: term.ne(terms.g, 0) } as const] : []),
      ...stores,
    ],
  };
  updateKernels.set(key, kernel);
  return kernel;
}
