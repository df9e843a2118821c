/** The lambda schedule: the learning rate at the start times a factor that a function gives. */

import { HoldfastError } from "../../errors/index.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** The factor after so many steps. */
export type LrLambda = (steps: number) => number;

/** Options of a `LambdaSchedule`. */
export interface LambdaOptions {
  /** One function for all groups, or a list with one for each. */
  readonly lrLambda: LrLambda | readonly LrLambda[];
}

/**
 * The learning rate at the start times what a function of the steps gives; PyTorch's LambdaLR.
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

  constructor(optimizer: Optimizer, { lrLambda }: LambdaOptions) {
    super(optimizer);
    const { length } = optimizer.groups;
    this.#lambdas = typeof lrLambda === "function" ? Array<LrLambda>(length).fill(lrLambda) : [...lrLambda];
    if (this.#lambdas.length === length) return;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `LambdaSchedule was given ${this.#lambdas.length} functions for ${length} groups. Give one for all, or one for each.`,
      { numbers: { lambdas: this.#lambdas.length, groups: length } },
    );
  }

  protected override lrFrom(baseLr: number, steps: number, group: number): number {
    return baseLr * (this.#lambdas[group]?.(steps) ?? 1);
  }
}
