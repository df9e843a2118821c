/** The multiplicative schedule: each step multiplies the learning rate by what a function returns. */

import { checkOptions } from "../../errors/index.js";
import type { Optimizer } from "../optimizer.js";
import { type LambdaOptions, type LrLambda, lambdaOptionNames, lambdasOf } from "./lambda.js";
import { Schedule } from "./schedule.js";

/**
 * Step n multiplies the learning rate by the function's value of n.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.lrScheduler.MultiplicativeLR(sgd, { lrLambda: (steps) => 1 / steps });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 8, 8, 4, 1.3333333333333333 ]
 * cpu.close();
 * ```
 */
export class MultiplicativeLR extends Schedule {
  readonly #lambdas: readonly LrLambda[];
  /** The last product of each group, so that a step multiplies once. */
  readonly #products: { steps: number; product: number }[];

  constructor(optimizer: Optimizer, options: LambdaOptions) {
    checkOptions("optim.lrScheduler.MultiplicativeLR", options, lambdaOptionNames);
    super(optimizer);
    this.#lambdas = lambdasOf("MultiplicativeLR", optimizer, options);
    this.#products = this.#lambdas.map(() => ({ steps: 0, product: 1 }));
  }

  protected override lrFrom(baseLr: number, steps: number, group: number): number {
    const last = this.#products[group];
    let { steps: done, product } = last && last.steps <= steps ? last : { steps: 0, product: 1 };
    while (done < steps) {
      done += 1;
      product *= this.#lambdas[group]?.(done) ?? 1;
    }
    this.#products[group] = { steps, product };
    return baseLr * product;
  }
}
