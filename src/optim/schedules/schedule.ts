/** The base of schedules: the learning rate is a function of the step count and the initial rate. */

import { HoldfastError } from "../../errors/index.js";
import type { Optimizer } from "../optimizer.js";

/** The state for resuming; plain numbers, for JSON. */
export interface ScheduleState {
  readonly steps: number;
  readonly baseLrs: readonly number[];
  /** The state of the schedule after a warm-up. */
  readonly after?: ScheduleState;
  /** The states of a combined schedule's parts. */
  readonly schedulers?: readonly ScheduleState[];
}

/**
 * The base of schedules: create one after its optimizer, and call `step()` after each of the optimizer's steps, or
 * epochs. A subclass computes the rate in `lrFrom`. Its rate for 0 steps applies from the start. The initial rate is the
 * one that was last set by hand: schedules of one optimizer share it.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * class Halving extends optim.Schedule {
 *   protected override lrFrom(baseLr: number, steps: number): number {
 *     return baseLr / 2 ** steps;
 *   }
 * }
 * const schedule: optim.Schedule = new Halving(sgd);
 * schedule.step();
 * console.log(sgd.lr, schedule.lrAfter(3)); // → 4 1
 * cpu.close();
 * ```
 */
export abstract class Schedule {
  readonly #optimizer: Optimizer;
  #steps = 0;
  #baseLrs: readonly number[];
  /** The rates of step 0 are not set yet. */
  #isBeginning = true;
  /** The error of setting them. */
  #failure: unknown;

  constructor(optimizer: Optimizer) {
    this.#optimizer = optimizer;
    this.#baseLrs = optimizer.groups.map(({ initialLr }) => initialLr);
    // The formula cannot run here: a subclass's fields are initialized after this constructor.
    for (const group of optimizer.groups) group.beforeLrIsUsed(() => this.#begin());
  }

  /**
   * How often `step()` was called.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedule = new optim.CosineSchedule(sgd, { tMax: 10 });
   * schedule.step();
   * console.log(schedule.steps); // → 1
   * cpu.close();
   * ```
   */
  get steps(): number {
    return this.#steps;
  }

  /**
   * The learning rate of a group after `steps` steps.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedule = new optim.CosineSchedule(sgd, { tMax: 4 });
   * console.log([0, 2, 4].map((steps) => schedule.lrAfter(steps).toFixed(2))); // → [ '8.00', '4.00', '0.00' ]
   * cpu.close();
   * ```
   */
  lrAfter(steps: number, group = 0): number {
    return this.lrFrom(this.#baseLrs[group] ?? 0, steps, group);
  }

  /**
   * Advances by one step and sets the learning rate of every group.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedule = new optim.StepSchedule(sgd, { stepSize: 1, gamma: 0.5 });
   * schedule.step();
   * schedule.step();
   * console.log(sgd.lr); // → 2
   * cpu.close();
   * ```
   */
  step(): void {
    this.#optimizer.rejectInTrace("schedule.step()");
    if (this.#failure !== undefined) throw this.#failure;
    this.apply(this.#steps + 1);
  }

  /**
   * The state for resuming; plain numbers, for JSON.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedule = new optim.StepSchedule(sgd, { stepSize: 2 });
   * schedule.step();
   * console.log(JSON.stringify(schedule.stateDict())); // → {"steps":1,"baseLrs":[8]}
   * cpu.close();
   * ```
   */
  stateDict(): ScheduleState {
    return { steps: this.#steps, baseLrs: [...this.#baseLrs] };
  }

  /**
   * Continues from a state. The optimizer's state has its learning rates.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedule = new optim.StepSchedule(sgd, { stepSize: 1, gamma: 0.5 });
   * schedule.loadStateDict({ steps: 2, baseLrs: [8] });
   * schedule.step();
   * console.log(sgd.lr); // → 1
   * cpu.close();
   * ```
   */
  loadStateDict({ steps, baseLrs }: ScheduleState): void {
    if (baseLrs.length !== this.#baseLrs.length) {
      throw new HoldfastError(
        "BAD_STATE",
        `The state of a schedule has ${baseLrs.length} groups, but the optimizer has ${this.#baseLrs.length}.`,
        { numbers: { state: baseLrs.length, groups: this.#baseLrs.length } },
      );
    }
    this.#isBeginning = false;
    this.#steps = steps;
    this.#baseLrs = [...baseLrs];
  }

  /** Sets the rates of step 0, once. */
  #begin(): void {
    if (!this.#isBeginning) return;
    try {
      this.apply(0);
    } catch (error) {
      // Code that reads the rate did not cause the error, so `step()` throws it. A schedule whose constructor threw is
      // never used.
      this.#failure = error;
    }
  }

  /** Sets the learning rates to those after `steps` steps. */
  protected apply(steps: number): void {
    this.#isBeginning = false;
    const groups = this.#optimizer.groups.slice(0, this.#baseLrs.length);
    const lrs = groups.map((_, group) => this.lrAfter(steps, group));
    for (const [index, group] of groups.entries()) group.schedule(lrs[index] ?? group.lr);
    this.#steps = steps;
  }

  /** Takes the present rates as the initial ones. */
  protected restart(): void {
    this.#baseLrs = this.#optimizer.groups.map(({ lr }) => lr);
  }

  /** The formula: from the initial rate and the step count. */
  protected abstract lrFrom(baseLr: number, steps: number, group: number): number;
}
