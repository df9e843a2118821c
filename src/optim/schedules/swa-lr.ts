/** The schedule of stochastic weight averaging: from the present learning rate to a constant one. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of an `SWALR`. */
export interface SwaLrOptions {
  /** The rate at which weights are averaged. */
  readonly swaLr: number;
  /** Steps from the present rate to this one. Default: 10. */
  readonly annealEpochs?: number;
  /** Default: "cos". */
  readonly annealStrategy?: "cos" | "linear";
}

/**
 * Goes from the learning rate at its first step to `swaLr`, and stays there. Another schedule may set the rates before that.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.swaUtils.SWALR(sgd, { swaLr: 2, annealEpochs: 2, annealStrategy: "linear" });
 * const lrs = [1, 2, 3].map(() => {
 *   schedule.step();
 *   return sgd.lr;
 * });
 * console.log(lrs); // → [ 5, 2, 2 ]
 * cpu.close();
 * ```
 */
export class SWALR extends Schedule {
  readonly #swaLr: number;
  readonly #annealEpochs: number;
  readonly #isLinear: boolean;

  constructor(optimizer: Optimizer, options: SwaLrOptions) {
    const {
      swaLr,
      annealEpochs = 10,
      annealStrategy = "cos",
    } = checkOptions("optim.swaUtils.SWALR", options, {
      swaLr: true,
      annealEpochs: true,
      annealStrategy: true,
    });
    super(optimizer);
    requireNumber("SWALR", "swaLr", swaLr, { from: 0 });
    requireCount("SWALR", "annealEpochs", annealEpochs, 0);
    this.#swaLr = swaLr;
    this.#annealEpochs = annealEpochs;
    this.#isLinear = annealStrategy === "linear";
  }

  protected override apply(steps: number): void {
    if (steps <= 1 && this.#annealEpochs > 0) this.restart();
    super.apply(steps);
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    const share = this.#annealEpochs === 0 ? 1 : Math.min(1, steps / this.#annealEpochs);
    const alpha = this.#isLinear ? share : (1 - Math.cos(Math.PI * share)) / 2;
    return this.#swaLr * alpha + baseLr * (1 - alpha);
  }
}
