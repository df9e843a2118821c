/** The cyclic schedule: up and down between two learning rates, again and again. */

import { checkOptions } from "../../errors/index.js";
import { requireCount, requireNumber } from "../numbers.js";
import type { Optimizer } from "../optimizer.js";
import { Schedule } from "./schedule.js";

/** Options of a `CyclicLR`. */
export interface CyclicOptions {
  /** The lowest rate. */
  readonly baseLr: number;
  /** The highest rate of the first cycle. */
  readonly maxLr: number;
  /** Steps from the lowest rate to the highest. Default: 2000. */
  readonly stepSizeUp?: number;
  /** Steps back. Default: `stepSizeUp`. */
  readonly stepSizeDown?: number;
  /**
   * How the height of cycles changes: not at all, by a half in each cycle, or by `gamma` in each step. Default: "triangular".
   */
  readonly mode?: "triangular" | "triangular2" | "exp_range";
  /** Default: 1. */
  readonly gamma?: number;
  /** The factor of the height, instead of a mode: a function of the cycle, from 1, or of the step, from 0. */
  readonly scaleFn?: (x: number) => number;
  /** What `scaleFn` gets. Default: "cycle". */
  readonly scaleMode?: "cycle" | "iterations";
}

/**
 * The learning rate of all groups goes up and down between two rates. PyTorch also changes the momentum; Holdfast does not.
 *
 * @example
 * ```ts
 * import { device, optim, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const sgd = new optim.SGD([zeros([1], { requiresGrad: true })], { lr: 8 });
 * const schedule = new optim.lrScheduler.CyclicLR(sgd, { baseLr: 1, maxLr: 5, stepSizeUp: 2 });
 * console.log([0, 1, 2, 3].map((steps) => schedule.lrAfter(steps))); // → [ 1, 3, 5, 3 ]
 * cpu.close();
 * ```
 */
export class CyclicLR extends Schedule {
  readonly #options: CyclicOptions;
  readonly #up: number;
  readonly #length: number;

  constructor(optimizer: Optimizer, options: CyclicOptions) {
    checkOptions("optim.lrScheduler.CyclicLR", options, {
      baseLr: true,
      maxLr: true,
      stepSizeUp: true,
      stepSizeDown: true,
      mode: true,
      gamma: true,
      scaleFn: true,
      scaleMode: true,
    });
    super(optimizer);
    const { baseLr, maxLr, stepSizeUp = 2000, stepSizeDown = stepSizeUp, gamma = 1 } = options;
    requireNumber("CyclicLR", "baseLr", baseLr, { from: 0 });
    requireNumber("CyclicLR", "maxLr", maxLr, { from: 0 });
    requireCount("CyclicLR", "stepSizeUp", stepSizeUp);
    requireCount("CyclicLR", "stepSizeDown", stepSizeDown);
    requireNumber("CyclicLR", "gamma", gamma, { from: 0 });
    this.#options = options;
    this.#up = stepSizeUp;
    this.#length = stepSizeUp + stepSizeDown;
  }

  protected override lrFrom(_baseLr: number, steps: number): number {
    const { baseLr, maxLr } = this.#options;
    const cycle = Math.floor(steps / this.#length) + 1;
    const position = steps % this.#length;
    const height =
      position <= this.#up ? position / this.#up : (this.#length - position) / (this.#length - this.#up);
    return baseLr + (maxLr - baseLr) * height * this.#scale(cycle, steps);
  }

  #scale(cycle: number, steps: number): number {
    const { mode = "triangular", gamma = 1, scaleFn, scaleMode = "cycle" } = this.#options;
    if (scaleFn) return scaleFn(scaleMode === "cycle" ? cycle : steps);
    if (mode === "exp_range") return gamma ** steps;
    return mode === "triangular2" ? 0.5 ** (cycle - 1) : 1;
  }
}
