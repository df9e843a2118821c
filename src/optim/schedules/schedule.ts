/** What schedules have in common: the learning rate follows from the number of steps and from the rate at the start. */

import { HoldfastError } from "../../errors/index.js";
import type { Optimizer } from "../optimizer.js";

/** All that a schedule goes on from; plain numbers, for JSON. */
export interface ScheduleState {
  readonly steps: number;
  readonly baseLrs: readonly number[];
  /** Of the schedule that follows a warm-up. */
  readonly after?: ScheduleState;
}

/** The base of schedules: make one after its optimizer, and call `step()` after each of the optimizer's steps, or epochs. */
export abstract class Schedule {
  readonly #optimizer: Optimizer;
  #steps = 0;
  #baseLrs: readonly number[];

  constructor(optimizer: Optimizer) {
    this.#optimizer = optimizer;
    this.#baseLrs = optimizer.groups.map(({ lr }) => lr);
  }

  /** How often `step()` was called. */
  get steps(): number {
    return this.#steps;
  }

  /** The learning rate of a group after so many steps. */
  lrAfter(steps: number, group = 0): number {
    return this.lrFrom(this.#baseLrs[group] ?? 0, steps, group);
  }

  /** Goes on by one step and sets the learning rate of every group. */
  step(): void {
    this.apply(this.#steps + 1);
  }

  stateDict(): ScheduleState {
    return { steps: this.#steps, baseLrs: [...this.#baseLrs] };
  }

  /** Goes on from a state. The optimizer's learning rates come with its own state. */
  loadStateDict({ steps, baseLrs }: ScheduleState): void {
    if (baseLrs.length !== this.#baseLrs.length) {
      throw new HoldfastError(
        "BAD_STATE",
        `The state of a schedule has ${baseLrs.length} groups and the optimizer ${this.#baseLrs.length}.`,
        { numbers: { state: baseLrs.length, groups: this.#baseLrs.length } },
      );
    }
    this.#steps = steps;
    this.#baseLrs = [...baseLrs];
  }

  /** Sets the learning rates to those after so many steps; constructors call it with 0. */
  protected apply(steps: number): void {
    const lrs = this.#optimizer.groups.map((_, group) => this.lrAfter(steps, group));
    for (const [place, group] of this.#optimizer.groups.entries()) group.lr = lrs[place] ?? group.lr;
    this.#steps = steps;
  }

  /** The formula: from the rate at the start and the number of steps. */
  protected abstract lrFrom(baseLr: number, steps: number, group: number): number;
}
