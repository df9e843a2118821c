/** The progress of a training: its next batch, the losses of the current epoch, and the steps that the device skipped. */

import type { TrainerPosition } from "./position.js";

export class TrainingProgress {
  /** Steps that were skipped before this process. */
  readonly skippedBefore: number;
  #skippedBeforeEpoch: number;
  #epoch: number;
  #batch: number;
  #step: number;
  #losses: number[];
  #latestLoss: number | undefined;

  constructor(from: TrainerPosition | undefined) {
    const { epoch = 0, batch = 0, step = 0, losses = [], skipped = 0, skippedInEpoch = 0 } = from ?? {};
    this.skippedBefore = skipped;
    this.#skippedBeforeEpoch = skipped - skippedInEpoch;
    [this.#epoch, this.#batch, this.#step] = [epoch, batch, step];
    this.#losses = [...losses];
    this.#latestLoss = losses.at(-1);
  }

  get epoch(): number {
    return this.#epoch;
  }

  /** The next batch of the epoch. */
  get batch(): number {
    return this.#batch;
  }

  /** Steps since the start. */
  get step(): number {
    return this.#step;
  }

  /** The losses of the current epoch's steps that the host has read. */
  get losses(): readonly number[] {
    return this.#losses;
  }

  /** The latest loss that the host has read, of this epoch or an earlier one. */
  get latestLoss(): number | undefined {
    return this.#latestLoss;
  }

  addLoss(loss: number): void {
    this.#losses.push(loss);
    this.#latestLoss = loss;
  }

  completeStep(nextBatch: number): void {
    this.#batch = nextBatch;
    this.#step++;
  }

  /** `skipped` counts the skipped steps since the start. */
  endEpoch(skipped: number): void {
    this.#epoch++;
    this.#batch = 0;
    this.#losses = [];
    this.#skippedBeforeEpoch = skipped;
  }

  /** The position to resume from. `skipped` counts the skipped steps since the start. */
  position(skipped: number): TrainerPosition & { readonly skippedInEpoch: number } {
    const skips = { skipped, skippedInEpoch: skipped - this.#skippedBeforeEpoch };
    return { epoch: this.#epoch, batch: this.#batch, step: this.#step, losses: [...this.#losses], ...skips };
  }
}
