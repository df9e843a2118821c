/** The progress of a run over all its folds, and its remaining time, estimated from the last seconds. */

import type { Trainer } from "./trainer.js";

/** The figures of a completed step, for displays. */
export interface StepFigures {
  /** Batches of the epoch: completed, and in total. */
  readonly batch: number;
  readonly batches: number;
  /** Steps of the run: completed, and in total. */
  readonly step: number;
  readonly steps: number;
  /** The latest loss that the host has read. */
  readonly loss: number | undefined;
  /** Samples trained on in this process. A sample counts each time it is used. */
  readonly samples: number;
  /** As `Trainer.samplesPerSecond` measures it. */
  readonly samplesPerSecond: number | undefined;
  readonly secondsLeft: number;
}

export class StepProgress {
  readonly #stepsOfFolds: readonly number[];
  #done: number;
  #samples = 0;
  #plans = 0;
  /** The start of the current measurement, and the result of the last one: NaN before the first. */
  #measured: { readonly atMs: number; readonly step: number; readonly perStepMs: number };

  /** A resumed run starts with the completed steps. */
  constructor(stepsOfFolds: readonly number[], done: number) {
    this.#stepsOfFolds = stepsOfFolds;
    this.#done = done;
    this.#measured = { atMs: performance.now(), step: done, perStepMs: Number.NaN };
  }

  /** Completed steps of the run, including those before a resume. */
  get done(): number {
    return this.#done;
  }

  /** Steps of the whole run. */
  get total(): number {
    return this.#stepsOfFolds.reduce((sum, steps) => sum + steps, 0);
  }

  /** Steps of the folds before this one. */
  stepsBefore(fold: number): number {
    return this.#stepsOfFolds.slice(0, fold).reduce((sum, steps) => sum + steps, 0);
  }

  get secondsLeft(): number {
    const { perStepMs } = this.#measured;
    return Number.isNaN(perStepMs) ? 0 : ((this.total - this.#done) * perStepMs) / 1000;
  }

  /** Counts a step of a fold, of so many samples. Returns the figures of its event. */
  completeStep(
    fold: number,
    trainer: Pick<Trainer, "progress" | "batches" | "latestLoss" | "samplesPerSecond" | "compiled">,
    samples: number,
  ): StepFigures & { readonly epoch: number } {
    const { epoch, batch, step } = trainer.progress;
    this.#done = this.stepsBefore(fold) + step;
    this.#samples += samples;
    const nowMs = performance.now();
    const plans = trainer.compiled?.plans ?? 0;
    // A step with a compilation is not representative.
    if (this.#done <= this.#measured.step || step === 1 || plans !== this.#plans)
      this.#measured = { ...this.#measured, atMs: nowMs, step: this.#done };
    else if (nowMs - this.#measured.atMs > 1000 || Number.isNaN(this.#measured.perStepMs)) {
      const perStepMs = (nowMs - this.#measured.atMs) / (this.#done - this.#measured.step);
      this.#measured = { atMs: nowMs, step: this.#done, perStepMs };
    }
    this.#plans = plans;
    return {
      ...{ epoch, batch, batches: trainer.batches, step: this.#done, steps: this.total },
      ...{ loss: trainer.latestLoss, samples: this.#samples, samplesPerSecond: trainer.samplesPerSecond },
      secondsLeft: this.secondsLeft,
    };
  }
}
