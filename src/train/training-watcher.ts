/** Observes a training, for recorders. */

import type { TrainingStep } from "./training-steps.js";

/** A step that was sent to the device. */
export interface SentStep {
  /** Counted from 1. */
  readonly step: number;
  readonly epoch: number;
  /** Rows of its batches. */
  readonly samples: number;
  readonly lr: number;
  /** Host time of the step, in milliseconds. */
  readonly hostMs: number;
}

/** Receives the events of a training. It runs at every step, so it must be fast. */
export interface TrainingWatcher {
  /** A step was sent to the device. Its loss comes later, through `lossRead`. */
  sent(step: SentStep): void;
  /** The host has read the loss of the oldest step without one. */
  lossRead(loss: number): void;
  /** A compiled step has a new plan, or runs a plan in a new way. */
  planned(compiled: TrainingStep): void;
}
