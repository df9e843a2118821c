/** Schedules that lower the learning rate in every step: by a factor, or along a power of the remaining steps. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of an `ExponentialLR`. */
export interface ExponentialOptions {
  readonly gamma: number;
}

/**
 * Multiplies the learning rate by `gamma` in every step.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.lrScheduler.ExponentialLR(sgd, { gamma: 0.5 });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 8, 4, 2, 1 ]
 * cpu.close();
 * ```
 */
export class ExponentialLR extends Schedule {
  readonly #gamma: number;

  constructor(optimizer: Optimizer, options: ExponentialOptions) {
    const { gamma } = checkOptions("optim.lrScheduler.ExponentialLR", options, { gamma: true });
    super(optimizer);
    requireNumber("ExponentialLR", "gamma", gamma, { from: 0 });
    this.#gamma = gamma;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    return baseLr * this.#gamma ** steps;
  }
}

/** Options of a `PolynomialLR`. */
export interface PolynomialOptions {
  /** The rate is 0 after these steps. Default: 5. */
  readonly totalIters?: number;
  /** Default: 1, a line. */
  readonly power?: number;
}

/**
 * The learning rate times a power of the share of steps that remain.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.lrScheduler.PolynomialLR(sgd, { totalIters: 4, power: 2 });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 8, 4.5, 2, 0.5 ]
 * cpu.close();
 * ```
 */
export class PolynomialLR extends Schedule {
  readonly #totalIters: number;
  readonly #power: number;

  constructor(optimizer: Optimizer, options: PolynomialOptions = {}) {
    const { totalIters = 5, power = 1 } = checkOptions("optim.lrScheduler.PolynomialLR", options, {
      totalIters: true,
      power: true,
    });
    super(optimizer);
    requireCount("PolynomialLR", "totalIters", totalIters);
    requireNumber("PolynomialLR", "power", power, { from: 0 });
    this.#totalIters = totalIters;
    this.#power = power;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    return baseLr * (1 - Math.min(steps, this.#totalIters) / this.#totalIters) ** this.#power;
  }
}
