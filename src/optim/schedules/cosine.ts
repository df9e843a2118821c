/** The cosine schedule: from the first learning rate to the last along half a cosine wave. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of a `CosineSchedule`. */
export interface CosineOptions {
  /** Steps down; the same number of steps go up again afterwards. */
  readonly tMax: number;
  /** The minimum learning rate. Default: 0. */
  readonly etaMin?: number;
}

/**
 * From the learning rate down to `etaMin` in `tMax` steps; PyTorch's CosineAnnealingLR.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 1 });
 * const schedule = new optim.CosineSchedule(sgd, { tMax: 3 });
 * schedule.step();
 * console.log(sgd.lr.toFixed(4)); // → 0.7500
 * cpu.close();
 * ```
 */
export class CosineSchedule extends Schedule {
  readonly #tMax: number;
  readonly #etaMin: number;

  constructor(optimizer: Optimizer, options: CosineOptions) {
    const { tMax, etaMin = 0 } = checkOptions("optim.CosineSchedule", options, { tMax: true, etaMin: true });
    super(optimizer);
    requireCount("CosineSchedule", "tMax", tMax);
    requireNumber("CosineSchedule", "etaMin", etaMin, { from: 0 });
    this.#tMax = tMax;
    this.#etaMin = etaMin;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    const share = (1 + Math.cos((Math.PI * steps) / this.#tMax)) / 2;
    return this.#etaMin + (baseLr - this.#etaMin) * share;
  }
}
