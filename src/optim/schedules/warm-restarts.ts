/** The cosine schedule that starts again and again, each time for longer if you like. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of a `CosineAnnealingWarmRestarts`. */
export interface WarmRestartsOptions {
  /** Steps before the first restart. */
  readonly t0: number;
  /** Each period has this many times the steps of the one before; a whole number. Default: 1. */
  readonly tMult?: number;
  /** The minimum learning rate. Default: 0. */
  readonly etaMin?: number;
}

/**
 * From the learning rate down to `etaMin` along half a cosine wave, then from the start again.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.lrScheduler.CosineAnnealingWarmRestarts(sgd, { t0: 2 });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 8, 4, 8, 4 ]
 * cpu.close();
 * ```
 */
export class CosineAnnealingWarmRestarts extends Schedule {
  readonly #t0: number;
  readonly #tMult: number;
  readonly #etaMin: number;

  constructor(optimizer: Optimizer, options: WarmRestartsOptions) {
    const {
      t0,
      tMult = 1,
      etaMin = 0,
    } = checkOptions("optim.lrScheduler.CosineAnnealingWarmRestarts", options, {
      t0: true,
      tMult: true,
      etaMin: true,
    });
    super(optimizer);
    requireCount("CosineAnnealingWarmRestarts", "t0", t0);
    requireCount("CosineAnnealingWarmRestarts", "tMult", tMult);
    requireNumber("CosineAnnealingWarmRestarts", "etaMin", etaMin, { from: 0 });
    this.#t0 = t0;
    this.#tMult = tMult;
    this.#etaMin = etaMin;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    let [length, position] = [this.#t0, steps];
    if (this.#tMult === 1) position %= length;
    else {
      while (position >= length) {
        position -= length;
        length *= this.#tMult;
      }
    }
    const share = (1 + Math.cos((Math.PI * position) / length)) / 2;
    return this.#etaMin + (baseLr - this.#etaMin) * share;
  }
}
