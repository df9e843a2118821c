/** Formulas and settings that several update rules share. */

import { HoldfastError } from "../errors/index.js";
import { type Expression, term } from "../ir/index.js";
import { requireNumber } from "./numbers.js";
import type { Assignment, ElementTerms } from "./update-rule.js";

/** The gradient of the loss: negated if the rule maximizes, with the weight decay added if `decay` is the index of its number. */
export function lossGradient(
  { p, g, number }: ElementTerms,
  { maximize = false, decay }: { readonly maximize?: boolean; readonly decay?: number },
): Expression {
  const signed = maximize ? term.neg(g) : g;
  return decay === undefined ? signed : term.add(signed, term.mul(number(decay), p));
}

/** `a` decays to the share of one setting, and takes the share of another of `b`. */
export function runningMean(
  a: Expression,
  b: Expression,
  [keep, take]: readonly [Expression, Expression],
): Expression {
  return term.add(term.mul(a, keep), term.mul(b, take));
}

/** Adam's moments 0 and 1: running means of the gradient and of its square, with `adamSettings`. */
export function runningMoments({ moment, setting }: ElementTerms, g: Expression): readonly Assignment[] {
  return [
    [0, runningMean(moment(0), g, [setting(0), setting(1)])],
    [1, term.add(term.mul(moment(1), setting(2)), term.mul(term.mul(setting(3), g), g))],
  ];
}

/** −1, 0 or 1; NaN stays NaN. */
export function signOf(value: Expression): Expression {
  return term.select(term.gt(value, 0), 1, term.select(term.lt(value, 0), -1, value));
}

/** Decay rates of two running means, and the number that is added to a divisor. */
export interface BetaOptions {
  readonly betas?: readonly [number, number];
  readonly eps?: number;
}

/** The settings of rules like Adam's: β₁, 1 − β₁, β₂, 1 − β₂ and eps. */
export function adamSettings(
  owner: string,
  { betas = [0.9, 0.999], eps = 1e-8 }: BetaOptions,
): readonly number[] {
  requireBetas(owner, betas);
  requireEps(owner, eps);
  const [beta1, beta2] = betas;
  return [beta1, 1 - beta1, beta2, 1 - beta2, eps];
}

export function requireBetas(owner: string, betas: readonly [number, number]): void {
  for (const beta of betas) requireNumber(owner, "beta", beta, { from: 0, below: 1 });
}

/** Padding is updated too, and 0 / (√0 + eps) must stay 0. */
export function requireEps(owner: string, eps: number): void {
  if (Math.fround(eps) > 0 && Number.isFinite(eps)) return;
  throw new HoldfastError("BAD_ARGUMENT", `${owner}: eps is ${eps}; it must be above 0 in f32. Use 1e-8.`, {
    numbers: { eps },
  });
}

/** The name of a rule with the options that change its formulas; rules with the same name share kernels. */
export function variantName(name: string, options: Readonly<Record<string, boolean>>): string {
  return [name, ...Object.keys(options).filter((option) => options[option])].join(", ");
}
