/** The position of a training: another trainer resumes from it, after checks. */

import { HoldfastError } from "../errors/index.js";
import type { EarlyStoppingState } from "./early-stopping.js";

/** The position of a training: its next batch, and the results of the current epoch so far. */
export interface TrainerPosition {
  /** Counted from 0. A position is always between two steps, never between two batches of one step. */
  readonly epoch: number;
  readonly batch: number;
  /** Steps since the start. */
  readonly step: number;
  /** The losses of the current epoch's steps so far. */
  readonly losses: readonly number[];
  /** Steps since the start that the device skipped because a gradient was not finite. Default: 0. */
  readonly skipped?: number;
  /** Skipped steps of the current epoch. Default: 0. */
  readonly skippedInEpoch?: number;
  readonly earlyStopping?: EarlyStoppingState;
}

/** The layout that a position must fit. */
export interface EpochLayout {
  /** Batches per epoch. */
  readonly batches: number;
  /** Batches per step. */
  readonly accumulate: number;
}

/** Throws if this training can't have the position: it comes from other data or settings, or was altered. */
export function requirePosition(position: TrainerPosition, { batches, accumulate }: EpochLayout): void {
  const { epoch, batch, step, losses, skipped = 0, skippedInEpoch = 0 } = position;
  for (const [name, value] of Object.entries({ epoch, batch, step, skipped, skippedInEpoch })) {
    if (Number.isSafeInteger(value) && value >= 0) continue;
    throw rejection(`${name} is ${String(value)}, but must be a whole number, 0 or more`, {
      [name]: value,
    });
  }
  if (batch > batches)
    throw rejection(`it is at batch ${batch}, but an epoch has ${batches} batches`, { batch, batches });
  // The gradients of the step's earlier batches are not saved.
  if (batch % accumulate !== 0 && batch !== batches) {
    throw rejection(
      `it is at batch ${batch} with accumulate ${accumulate}, but steps start at multiples of ${accumulate}`,
      { batch, accumulate },
    );
  }
  const steps = Math.ceil(batch / accumulate);
  if (!Array.isArray(losses) || losses.some((loss) => typeof loss !== "number"))
    throw rejection("its losses are not a list of numbers", {});
  if (losses.length !== steps) {
    throw rejection(`it has ${losses.length} losses for ${steps} steps of its epoch`, {
      losses: losses.length,
      steps,
    });
  }
  if (step < steps) throw rejection(`it is at step ${step}, but its epoch has ${steps}`, { step, steps });
  if (skippedInEpoch > skipped || skippedInEpoch > steps)
    throw rejection(`it counts ${skippedInEpoch} skipped steps in an epoch of ${steps}`, {
      skippedInEpoch,
    });
}

function rejection(why: string, numbers: Readonly<Record<string, number>>): HoldfastError {
  return new HoldfastError(
    "BAD_STATE",
    `Training can't resume from this position: ${why}. Use the data, batch size and accumulate value of the saved run.`,
    { numbers },
  );
}
