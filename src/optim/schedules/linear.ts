/** A schedule that changes the learning rate linearly, from one share of it to another. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of a `LinearLR`. */
export interface LinearOptions {
  /** The first share of the learning rate. Default: 1/3. */
  readonly startFactor?: number;
  /** The last share of it. Default: 1. */
  readonly endFactor?: number;
  /** Steps from the first share to the last. Default: 5. */
  readonly totalIters?: number;
}

/**
 * The learning rate times a factor that changes linearly.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.lrScheduler.LinearLR(sgd, { startFactor: 0.25, totalIters: 3 });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 2, 4, 6, 8 ]
 * cpu.close();
 * ```
 */
export class LinearLR extends Schedule {
  readonly #startFactor: number;
  readonly #endFactor: number;
  readonly #totalIters: number;

  constructor(optimizer: Optimizer, options: LinearOptions = {}) {
    const {
      startFactor = 1 / 3,
      endFactor = 1,
      totalIters = 5,
    } = checkOptions("optim.lrScheduler.LinearLR", options, {
      startFactor: true,
      endFactor: true,
      totalIters: true,
    });
    super(optimizer);
    requireNumber("LinearLR", "startFactor", startFactor, { above: 0, upTo: 1 });
    requireNumber("LinearLR", "endFactor", endFactor, { from: 0, upTo: 1 });
    requireCount("LinearLR", "totalIters", totalIters);
    this.#startFactor = startFactor;
    this.#endFactor = endFactor;
    this.#totalIters = totalIters;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    const share = Math.min(steps, this.#totalIters) / this.#totalIters;
    return baseLr * (this.#startFactor + (this.#endFactor - this.#startFactor) * share);
  }
}
