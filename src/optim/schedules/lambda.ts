/** The lambda schedule: the initial learning rate times a factor that a function returns. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** The factor after `steps` steps. */
export type LrLambda = (steps: number) => number;

/** Options of a `LambdaSchedule`. */
export interface LambdaOptions {
  /** One function for all groups, or one per group. */
  readonly lrLambda: LrLambda | readonly LrLambda[];
}

export const lambdaOptionNames: OptionNames<LambdaOptions> = { lrLambda: true };

/**
 * The initial learning rate times a function of the step count; PyTorch's LambdaLR.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.LambdaSchedule(sgd, { lrLambda: (steps) => (steps + 1) / 4 });
 * const first = sgd.lr;
 * schedule.step();
 * console.log(first, sgd.lr); // → 2 4
 * cpu.close();
 * ```
 */
export class LambdaSchedule extends Schedule {
  readonly #lambdas: readonly LrLambda[];

  constructor(optimizer: Optimizer, options: LambdaOptions) {
    const { lrLambda } = checkOptions("optim.LambdaSchedule", options, lambdaOptionNames);
    super(optimizer);
    this.#lambdas = lambdasOf("LambdaSchedule", optimizer, { lrLambda });
  }

  protected override lrFrom(baseLr: number, steps: number, group: number): number {
    return baseLr * (this.#lambdas[group]?.(steps) ?? 1);
  }
}

/** One function per group. */
export function lambdasOf(
  owner: string,
  { groups: { length } }: Optimizer,
  { lrLambda }: LambdaOptions,
): readonly LrLambda[] {
  const lambdas = typeof lrLambda === "function" ? Array<LrLambda>(length).fill(lrLambda) : [...lrLambda];
  if (lambdas.length === length) return lambdas;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${owner} got ${lambdas.length} functions for ${length} groups. Pass one function, or one per group.`,
    { numbers: { lambdas: lambdas.length, groups: length } },
  );
}
