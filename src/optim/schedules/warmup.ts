/** A linear warm-up, followed by any other schedule. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule, type ScheduleState } from "./schedule.js";

/** Options of a `WarmupSchedule`. */
export interface WarmupOptions {
  /** Steps to the full learning rate. */
  readonly steps: number;
  /** The initial share of the full learning rate. Default: 1/3. */
  readonly startFactor?: number;
  /** The schedule after the warm-up, from its start. Default: the full learning rate. */
  readonly after?: Schedule;
}

/**
 * Raises the learning rate linearly; PyTorch's LinearLR, followed by another schedule as in SequentialLR.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const after = new optim.StepSchedule(sgd, { stepSize: 1, gamma: 0.5 });
 * const schedule = new optim.WarmupSchedule(sgd, { steps: 2, startFactor: 0.25, after });
 * const lrs = [sgd.lr];
 * for (let step = 0; step < 3; step++) {
 *   schedule.step();
 *   lrs.push(sgd.lr);
 * }
 * console.log(lrs); // → [ 2, 5, 8, 4 ]
 * cpu.close();
 * ```
 */
export class WarmupSchedule extends Schedule {
  readonly #length: number;
  readonly #startFactor: number;
  readonly #after: Schedule | undefined;

  constructor(optimizer: Optimizer, options: WarmupOptions) {
    const {
      steps,
      startFactor = 1 / 3,
      after,
    } = checkOptions("optim.WarmupSchedule", options, { steps: true, startFactor: true, after: true });
    super(optimizer);
    requireCount("WarmupSchedule", "steps", steps);
    requireNumber("WarmupSchedule", "startFactor", startFactor, { above: 0, upTo: 1 });
    this.#length = steps;
    this.#startFactor = startFactor;
    this.#after = after;
  }

  /**
   * The state of the warm-up and of the schedule after it; plain numbers, for JSON.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const after = new optim.StepSchedule(sgd, { stepSize: 1 });
   * const schedule = new optim.WarmupSchedule(sgd, { steps: 3, after });
   * console.log(JSON.stringify(schedule.stateDict().after)); // → {"steps":0,"baseLrs":[8]}
   * cpu.close();
   * ```
   */
  override stateDict(): ScheduleState {
    return { ...super.stateDict(), ...(this.#after && { after: this.#after.stateDict() }) };
  }

  /**
   * Continues from a state, including the schedule after it.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const schedule = new optim.WarmupSchedule(sgd, { steps: 4, startFactor: 0.5 });
   * schedule.loadStateDict({ steps: 1, baseLrs: [8] });
   * schedule.step();
   * console.log(sgd.lr); // → 6
   * cpu.close();
   * ```
   */
  override loadStateDict(state: ScheduleState): void {
    super.loadStateDict(state);
    if (state.after) this.#after?.loadStateDict(state.after);
  }

  protected override lrFrom(baseLr: number, steps: number, group: number): number {
    const full = this.#after?.lrAfter(Math.max(0, steps - this.#length), group) ?? baseLr;
    if (steps >= this.#length) return full;
    return full * (this.#startFactor + ((1 - this.#startFactor) * steps) / this.#length);
  }
}
