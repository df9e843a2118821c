/** The one-cycle schedule: up to a maximum learning rate and down to almost zero, over a known number of steps. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of a `OneCycleSchedule`. */
export interface OneCycleOptions {
  readonly maxLr: number;
  readonly totalSteps: number;
  /** The share of steps that increase the rate. Default: 0.3. */
  readonly pctStart?: number;
  /** Default: "cos". */
  readonly annealStrategy?: "cos" | "linear";
  /** The initial learning rate is maxLr / divFactor. Default: 25. */
  readonly divFactor?: number;
  /** The final rate is the initial one / finalDivFactor. Default: 1e4. */
  readonly finalDivFactor?: number;
  /** Use three phases: up, down to the initial rate in as many steps, then down to the final rate. */
  readonly threePhase?: boolean;
}

interface Phase {
  readonly end: number;
  readonly from: number;
  readonly to: number;
}

/**
 * PyTorch's OneCycleLR, without momentum cycling.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.OneCycleSchedule(sgd, { maxLr: 1, totalSteps: 12, pctStart: 0.5, divFactor: 10 });
 * console.log([0, 5, 11].map((steps) => schedule.lrAfter(steps).toFixed(3))); // → [ '0.100', '1.000', '0.000' ]
 * cpu.close();
 * ```
 */
export class OneCycleSchedule extends Schedule {
  readonly #totalSteps: number;
  readonly #anneal: (from: number, to: number, share: number) => number;
  readonly #phases: readonly Phase[];

  constructor(optimizer: Optimizer, options: OneCycleOptions) {
    checkOptions("optim.lrScheduler.OneCycleLR", options, {
      maxLr: true,
      totalSteps: true,
      pctStart: true,
      annealStrategy: true,
      divFactor: true,
      finalDivFactor: true,
      threePhase: true,
    });
    super(optimizer);
    const { maxLr, totalSteps, pctStart = 0.3, divFactor = 25, finalDivFactor = 1e4 } = options;
    requireNumber("OneCycleSchedule", "maxLr", maxLr, { from: 0 });
    requireCount("OneCycleSchedule", "totalSteps", totalSteps);
    requireNumber("OneCycleSchedule", "pctStart", pctStart, { from: 0, upTo: 1 });
    requireNumber("OneCycleSchedule", "divFactor", divFactor, { above: 0 });
    requireNumber("OneCycleSchedule", "finalDivFactor", finalDivFactor, { above: 0 });
    this.#totalSteps = totalSteps;
    this.#anneal = options.annealStrategy === "linear" ? alongLine : alongCosine;
    const first = maxLr / divFactor;
    const last = first / finalDivFactor;
    const top = pctStart * totalSteps - 1;
    this.#phases = options.threePhase
      ? [
          { end: top, from: first, to: maxLr },
          { end: 2 * pctStart * totalSteps - 2, from: maxLr, to: first },
          { end: totalSteps - 1, from: first, to: last },
        ]
      : [
          { end: top, from: first, to: maxLr },
          { end: totalSteps - 1, from: maxLr, to: last },
        ];
  }

  protected override lrFrom(_baseLr: number, steps: number): number {
    if (steps > this.#totalSteps) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `OneCycleSchedule was created for ${this.#totalSteps} steps, but this is step ${steps + 1}. Raise totalSteps.`,
        { numbers: { steps, totalSteps: this.#totalSteps } },
      );
    }
    const phase = this.#phases.findIndex(({ end }) => steps <= end);
    const index = phase < 0 ? this.#phases.length - 1 : phase;
    const start = this.#phases[index - 1]?.end ?? 0;
    const { end, from, to } = this.#phases[index] ?? { end: 1, from: 0, to: 0 };
    return this.#anneal(from, to, (steps - start) / (end - start));
  }
}

function alongCosine(from: number, to: number, share: number): number {
  return to + ((from - to) / 2) * (Math.cos(Math.PI * share) + 1);
}

function alongLine(from: number, to: number, share: number): number {
  return (to - from) * share + from;
}
