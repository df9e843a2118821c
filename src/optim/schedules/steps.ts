/** Schedules with a piecewise constant learning rate. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of a `ConstantSchedule`. */
export interface ConstantOptions {
  /** Default: 1. */
  readonly factor?: number;
  /** The factor becomes 1 after this many steps. Default: never. */
  readonly totalIters?: number;
}

/**
 * The learning rate times a factor, for a number of steps or for good; PyTorch's ConstantLR.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.ConstantSchedule(sgd, { factor: 0.25, totalIters: 2 });
 * const lrs = [sgd.lr];
 * for (let step = 0; step < 3; step++) {
 *   schedule.step();
 *   lrs.push(sgd.lr);
 * }
 * console.log(lrs); // → [ 2, 2, 8, 8 ]
 * cpu.close();
 * ```
 */
export class ConstantSchedule extends Schedule {
  readonly #factor: number;
  readonly #totalIters: number;

  constructor(optimizer: Optimizer, options: ConstantOptions = {}) {
    const { factor = 1, totalIters = Infinity } = checkOptions("optim.ConstantSchedule", options, {
      factor: true,
      totalIters: true,
    });
    super(optimizer);
    requireNumber("ConstantSchedule", "factor", factor, { from: 0 });
    if (totalIters !== Infinity) requireCount("ConstantSchedule", "totalIters", totalIters);
    this.#factor = factor;
    this.#totalIters = totalIters;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    return steps < this.#totalIters ? baseLr * this.#factor : baseLr;
  }
}

/** Options of a `StepSchedule`. */
export interface StepOptions {
  readonly stepSize: number;
  /** Default: 0.1. */
  readonly gamma?: number;
}

/**
 * Multiplies the learning rate by `gamma` every `stepSize` steps; PyTorch's StepLR.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.StepSchedule(sgd, { stepSize: 2, gamma: 0.5 });
 * const lrs = [1, 2, 3, 4].map(() => {
 *   schedule.step();
 *   return sgd.lr;
 * });
 * console.log(lrs); // → [ 8, 4, 4, 2 ]
 * cpu.close();
 * ```
 */
export class StepSchedule extends Schedule {
  readonly #stepSize: number;
  readonly #gamma: number;

  constructor(optimizer: Optimizer, options: StepOptions) {
    const { stepSize, gamma = 0.1 } = checkOptions("optim.lrScheduler.StepLR", options, {
      stepSize: true,
      gamma: true,
    });
    super(optimizer);
    requireCount("StepSchedule", "stepSize", stepSize);
    requireNumber("StepSchedule", "gamma", gamma, { from: 0 });
    this.#stepSize = stepSize;
    this.#gamma = gamma;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    return baseLr * this.#gamma ** Math.floor(steps / this.#stepSize);
  }
}

/** Options of a `MultiStepSchedule`. */
export interface MultiStepOptions {
  readonly milestones: readonly number[];
  /** Default: 0.1. */
  readonly gamma?: number;
}

/**
 * Multiplies the learning rate by `gamma` at each milestone; PyTorch's MultiStepLR.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.MultiStepSchedule(sgd, { milestones: [1, 3], gamma: 0.5 });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 8, 4, 4, 2 ]
 * cpu.close();
 * ```
 */
export class MultiStepSchedule extends Schedule {
  readonly #milestones: readonly number[];
  readonly #gamma: number;

  constructor(optimizer: Optimizer, options: MultiStepOptions) {
    const { milestones, gamma = 0.1 } = checkOptions("optim.lrScheduler.MultiStepLR", options, {
      milestones: true,
      gamma: true,
    });
    super(optimizer);
    for (const milestone of milestones) requireCount("MultiStepSchedule", "milestone", milestone);
    requireNumber("MultiStepSchedule", "gamma", gamma, { from: 0 });
    this.#milestones = [...milestones];
    this.#gamma = gamma;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    return baseLr * this.#gamma ** this.#milestones.filter((milestone) => milestone <= steps).length;
  }
}
