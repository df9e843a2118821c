/** Lowers the learning rate when a metric stops improving. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";

/** Options of `ReduceOnPlateau`. */
export interface PlateauOptions {
  /** "min" if a smaller metric is better, "max" if a larger one is. Default: "min". */
  readonly mode?: "min" | "max";
  /** Default: 0.1. */
  readonly factor?: number;
  /** Number of steps without improvement to tolerate. Default: 10. */
  readonly patience?: number;
  /** Minimum change that counts as an improvement. Default: 1e-4. */
  readonly threshold?: number;
  /** Whether the threshold is relative to the best metric or absolute. Default: "rel". */
  readonly thresholdMode?: "rel" | "abs";
  /** Number of steps to ignore after a change. Default: 0. */
  readonly cooldown?: number;
  readonly minLr?: number;
  /** Minimum change of the learning rate; smaller ones are skipped. Default: 1e-8. */
  readonly eps?: number;
}

/** The state for resuming; plain numbers, for JSON. `best` is absent before the first metric. */
export interface PlateauState {
  readonly steps: number;
  readonly best?: number;
  readonly badSteps: number;
  readonly cooldownLeft: number;
}

/**
 * Multiplies the learning rate by `factor` when a metric has not improved for `patience` steps; PyTorch's
 * ReduceLROnPlateau.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const plateau = new optim.ReduceOnPlateau(sgd, { patience: 1, factor: 0.5 });
 * for (const loss of [3, 2, 2, 2]) plateau.step(loss);
 * console.log(sgd.lr); // → 4
 * cpu.close();
 * ```
 */
export class ReduceOnPlateau {
  readonly #optimizer: Optimizer;
  readonly #options: Required<PlateauOptions>;
  #state: { steps: number; best?: number; badSteps: number; cooldownLeft: number };

  constructor(optimizer: Optimizer, options: PlateauOptions = {}) {
    checkOptions("optim.lrScheduler.ReduceLROnPlateau", options, {
      mode: true,
      factor: true,
      patience: true,
      threshold: true,
      thresholdMode: true,
      cooldown: true,
      minLr: true,
      eps: true,
    });
    this.#optimizer = optimizer;
    this.#options = {
      ...{ mode: "min", factor: 0.1, patience: 10, threshold: 1e-4, thresholdMode: "rel" },
      ...{ cooldown: 0, minLr: 0, eps: 1e-8 },
      ...options,
    };
    const { factor, patience, threshold, cooldown, minLr, eps } = this.#options;
    requireNumber("ReduceOnPlateau", "factor", factor, { from: 0, below: 1 });
    requireCount("ReduceOnPlateau", "patience", patience, 0);
    requireCount("ReduceOnPlateau", "cooldown", cooldown, 0);
    requireNumber("ReduceOnPlateau", "threshold", threshold, { from: 0 });
    requireNumber("ReduceOnPlateau", "minLr", minLr, { from: 0 });
    requireNumber("ReduceOnPlateau", "eps", eps, { from: 0 });
    this.#state = { steps: 0, badSteps: 0, cooldownLeft: 0 };
  }

  /**
   * Takes an epoch's metric, and lowers the learning rates if it is time. A NaN is no improvement.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const plateau = new optim.ReduceOnPlateau(sgd, { mode: "max", patience: 0, factor: 0.5 });
   * for (const accuracy of [0.7, 0.8, 0.8]) plateau.step(accuracy);
   * console.log(sgd.lr); // → 4
   * cpu.close();
   * ```
   */
  step(metric: number): void {
    this.#optimizer.rejectInTrace("schedule.step()");
    const state = this.#state;
    state.steps += 1;
    if (this.#isBetter(metric)) {
      state.best = metric;
      state.badSteps = 0;
    } else state.badSteps += 1;
    if (state.cooldownLeft > 0) {
      state.cooldownLeft -= 1;
      state.badSteps = 0;
    }
    if (state.badSteps <= this.#options.patience) return;
    this.#lower();
    state.cooldownLeft = this.#options.cooldown;
    state.badSteps = 0;
  }

  /**
   * The state for resuming; plain numbers, for JSON.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const plateau = new optim.ReduceOnPlateau(sgd);
   * plateau.step(0.25);
   * console.log(plateau.stateDict().best); // → 0.25
   * cpu.close();
   * ```
   */
  stateDict(): PlateauState {
    return { ...this.#state };
  }

  /**
   * Continues from a state. The optimizer's state has its learning rates.
   *
   * @example
   * ```ts
   * import { device, optim, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
   * const [first, second] = [new optim.ReduceOnPlateau(sgd), new optim.ReduceOnPlateau(sgd)];
   * first.step(0.25);
   * second.loadStateDict(first.stateDict());
   * console.log(second.stateDict().steps); // → 1
   * cpu.close();
   * ```
   */
  loadStateDict(state: PlateauState): void {
    this.#state = { ...state };
  }

  #lower(): void {
    const { factor, minLr, eps } = this.#options;
    for (const group of this.#optimizer.groups) {
      const lower = Math.max(group.lr * factor, minLr);
      if (group.lr - lower > eps) group.lr = lower;
    }
  }

  #isBetter(metric: number): boolean {
    const { mode, threshold, thresholdMode } = this.#options;
    const { best } = this.#state;
    if (best === undefined) return mode === "min" ? metric < Infinity : metric > -Infinity;
    const margin = thresholdMode === "rel" ? best * threshold : threshold;
    return mode === "min" ? metric < best - margin : metric > best + margin;
  }
}
