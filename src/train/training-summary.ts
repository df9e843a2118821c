/** The results of a training: the figures of each epoch, and how it ended. */

/** The figures of a completed epoch. */
export interface EpochRecord {
  readonly epoch: number;
  readonly steps: number;
  /** The mean loss over all rows, each taken when its batch was trained. */
  readonly loss: number;
  readonly lr: number;
  /** Without compilation; undefined if every step was compiled. */
  readonly samplesPerSecond: number | undefined;
  readonly seconds: number;
  /** Steps that the device has skipped since the start because a gradient was not finite. */
  readonly skipped: number;
  /** The figures of `evaluate`. */
  readonly figures: Readonly<Record<string, number>>;
  /** Why the training has diverged; undefined if it has not. */
  readonly diverged?: string | undefined;
}

/** The result of `Trainer.run()`. */
export interface TrainingSummary {
  /**
   * "stopped": ended by the signal. "early": ended by early stopping. "diverged": in the last epoch most steps were skipped or a loss
   * was not finite, so more training would not help.
   */
  readonly state: "finished" | "stopped" | "early" | "diverged";
  readonly steps: number;
  /** Why the training has diverged. */
  readonly reason?: string | undefined;
  /** The epochs that this trainer completed. */
  readonly epochs: readonly EpochRecord[];
}
