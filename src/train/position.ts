/** Where a training stands: what another trainer goes on from, and what it rejects to go on from. */

import { HoldfastError } from "../errors/index.js";
import type { EarlyStoppingState } from "./early-stopping.js";

/** Where a training stands: what comes next, and what of the present epoch is done. */
export interface TrainerPosition {
  /** Counted from 0. A position is always between two steps, never between two batches of one step. */
  readonly epoch: number;
  readonly batch: number;
  /** Steps since the start. */
  readonly step: number;
  /** The losses of the present epoch's steps so far. */
  readonly losses: readonly number[];
  /** Steps since the start that the device skipped because a gradient was not finite. Default: 0. */
  readonly skipped?: number;
  /** Those of the present epoch among them. Default: 0. */
  readonly skippedInEpoch?: number;
  readonly earlyStopping?: EarlyStoppingState;
}

/** What a position is held to. */
export interface EpochLayout {
  /** Batches in an epoch. */
  readonly batches: number;
  /** Batches in a step. */
  readonly accumulate: number;
}

/** Rejects a position that this training can't have: it comes from other data or settings, or was altered. */
export function requirePosition(position: TrainerPosition, { batches, accumulate }: EpochLayout): void {
  const { epoch, batch, step, losses, skipped = 0, skippedInEpoch = 0 } = position;
  for (const [name, value] of Object.entries({ epoch, batch, step, skipped, skippedInEpoch })) {
    if (Number.isSafeInteger(value) && value >= 0) continue;
    throw rejection(`${name} is ${String(value)}, and it must be a whole number from 0 on`, {
      [name]: value,
    });
  }
  if (batch > batches)
    throw rejection(`it is at batch ${batch}, and an epoch has ${batches} batches here`, { batch, batches });
  // The gradients of a step's first batches are gone.
  if (batch % accumulate !== 0 && batch !== batches) {
    throw rejection(
      `it is at batch ${batch} with accumulate ${accumulate}, and steps begin at multiples of ${accumulate}`,
      { batch, accumulate },
    );
  }
  const steps = Math.ceil(batch / accumulate);
  if (!Array.isArray(losses) || losses.some((loss) => typeof loss !== "number"))
    throw rejection("its losses are no list of numbers", {});
  if (losses.length !== steps) {
    throw rejection(`it has ${losses.length} losses for ${steps} steps of its epoch`, {
      losses: losses.length,
      steps,
    });
  }
  if (step < steps) throw rejection(`it is at step ${step}, and its epoch has had ${steps}`, { step, steps });
  if (skippedInEpoch > skipped || skippedInEpoch > steps)
    throw rejection(`it counts ${skippedInEpoch} skipped steps for ${steps} of its epoch`, {
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
