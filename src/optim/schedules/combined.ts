/** Schedules made of schedules: one after the other, or all at once. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { requireCount } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule, type ScheduleState } from "./schedule.js";

/** Options of a `ChainedScheduler`. */
export interface ChainedOptions {
  readonly schedulers: readonly Schedule[];
}

/** Options of a `SequentialLR`. */
export interface SequentialOptions extends ChainedOptions {
  /** The step in which each schedule after the first one begins, in ascending order. */
  readonly milestones: readonly number[];
}

/** A schedule that computes its rates from those of others; only it is stepped. */
abstract class CombinedSchedule extends Schedule {
  protected readonly schedulers: readonly Schedule[];

  constructor(optimizer: Optimizer, owner: string, schedulers: readonly Schedule[]) {
    super(optimizer);
    if (schedulers.length === 0)
      throw new HoldfastError("BAD_ARGUMENT", `${owner} got no schedules. Pass at least one.`);
    this.schedulers = [...schedulers];
  }

  /**
   * The state of this schedule and of its parts; plain numbers, for JSON.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedulers = [new optim.lrScheduler.ExponentialLR(sgd, { gamma: 0.5 })];
   * const chained = new optim.lrScheduler.ChainedScheduler(sgd, { schedulers });
   * chained.step();
   * console.log(JSON.stringify(chained.stateDict())); // → {"steps":1,"baseLrs":[8],"schedulers":[{"steps":0,"baseLrs":[8]}]}
   * cpu.close();
   * ```
   */
  override stateDict(): ScheduleState {
    return { ...super.stateDict(), schedulers: this.schedulers.map((schedule) => schedule.stateDict()) };
  }

  /**
   * Continues from a state, including those of its parts.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedulers = [new optim.lrScheduler.ExponentialLR(sgd, { gamma: 0.5 })];
   * const chained = new optim.lrScheduler.ChainedScheduler(sgd, { schedulers });
   * chained.loadStateDict({ steps: 2, baseLrs: [8], schedulers: [{ steps: 0, baseLrs: [8] }] });
   * chained.step();
   * console.log(sgd.lr); // → 1
   * cpu.close();
   * ```
   */
  override loadStateDict(state: ScheduleState): void {
    const states = state.schedulers ?? [];
    if (states.length !== this.schedulers.length) {
      throw new HoldfastError(
        "BAD_STATE",
        `The state of a schedule has ${states.length} parts, but the schedule has ${this.schedulers.length}.`,
        { numbers: { state: states.length, schedulers: this.schedulers.length } },
      );
    }
    super.loadStateDict(state);
    for (const [index, part] of states.entries()) this.schedulers[index]?.loadStateDict(part);
  }
}

/**
 * One schedule after the other. Each counts its own steps from its milestone.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const { ConstantLR, ExponentialLR, SequentialLR } = optim.lrScheduler;
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedulers = [new ConstantLR(sgd, { factor: 0.5 }), new ExponentialLR(sgd, { gamma: 0.25 })];
 * const schedule = new SequentialLR(sgd, { schedulers, milestones: [2] });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 4, 4, 8, 2 ]
 * cpu.close();
 * ```
 */
export class SequentialLR extends CombinedSchedule {
  readonly #milestones: readonly number[];

  constructor(optimizer: Optimizer, options: SequentialOptions) {
    const { schedulers, milestones } = checkOptions("optim.lrScheduler.SequentialLR", options, {
      milestones: true,
      schedulers: true,
    });
    super(optimizer, "SequentialLR", schedulers);
    for (const milestone of milestones) requireCount("SequentialLR", "milestone", milestone);
    const isAscending = milestones.every(
      (milestone, index) => index === 0 || milestone > (milestones[index - 1] ?? 0),
    );
    if (milestones.length !== schedulers.length - 1 || !isAscending) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `SequentialLR got ${schedulers.length} schedules and the milestones [${milestones.join(", ")}]. ` +
          `Pass ${schedulers.length - 1} milestones in ascending order.`,
        { numbers: { schedulers: schedulers.length, milestones: milestones.length } },
      );
    }
    this.#milestones = [...milestones];
  }

  protected override lrFrom(_baseLr: number, steps: number, group: number): number {
    const index = this.#milestones.filter((milestone) => milestone <= steps).length;
    const start = this.#milestones[index - 1] ?? 0;
    return this.schedulers[index]?.lrAfter(steps - start, group) ?? 0;
  }
}

/**
 * All schedules at once: the initial learning rate times the factor of each, which is its rate divided by the initial one.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const { ChainedScheduler, ConstantLR, ExponentialLR } = optim.lrScheduler;
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedulers = [new ConstantLR(sgd, { factor: 0.5, totalIters: 2 }), new ExponentialLR(sgd, { gamma: 0.5 })];
 * const schedule = new ChainedScheduler(sgd, { schedulers });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 4, 2, 2, 1 ]
 * cpu.close();
 * ```
 */
export class ChainedScheduler extends CombinedSchedule {
  constructor(optimizer: Optimizer, options: ChainedOptions) {
    const { schedulers } = checkOptions("optim.lrScheduler.ChainedScheduler", options, { schedulers: true });
    super(optimizer, "ChainedScheduler", schedulers);
  }

  protected override lrFrom(baseLr: number, steps: number, group: number): number {
    if (baseLr === 0) return 0;
    return this.schedulers.reduce((lr, schedule) => lr * (schedule.lrAfter(steps, group) / baseLr), baseLr);
  }
}
