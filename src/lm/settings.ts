/** The settings of a training of a language model. Together with the model and the texts they determine its result. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import type { LoraOptions } from "../models/index.js";

/** How the learning rate falls after the warm-up. */
export type LrSchedule = "cosine" | "linear" | "constant";

/** The settings of a training. A run resumes only with the same ones. */
export interface JobSettings {
  readonly epochs: number;
  /** Ends after so many steps, if the epochs have more. */
  readonly maxSteps?: number;
  /** Rows of a batch. */
  readonly batch: number;
  /** Batches whose gradients are added before an update. */
  readonly accumulate: number;
  /** The highest learning rate. */
  readonly lr: number;
  readonly schedule: LrSchedule;
  /** The share of the steps in which the learning rate rises. */
  readonly warmup: number;
  /** Of matrices and embeddings; biases and norms have none. */
  readonly weightDecay: number;
  /** Max. norm of all gradients together. */
  readonly clip: number;
  readonly seed: number;
  /** Steps between two evaluations. Default: an epoch. */
  readonly evalEvery?: number;
  /** Computes the blocks again in backward, for less memory. */
  readonly checkpoint: boolean;
  /** Trains LoRA adapters. Default: all weights are trained. */
  readonly lora?: LoraOptions;
}

/** The default settings, for all weights of a trained model. */
export const defaultSettings: JobSettings = {
  epochs: 1,
  batch: 8,
  accumulate: 1,
  lr: 5e-5,
  schedule: "cosine",
  warmup: 0.03,
  weightDecay: 0.01,
  clip: 1,
  seed: 42,
  checkpoint: false,
};

const schedules: readonly string[] = ["cosine", "linear", "constant"] satisfies LrSchedule[];

/** Throws if a setting is unknown or invalid. */
export function requireSettings(settings: JobSettings): void {
  checkOptions("lm.runJob: settings", settings, {
    ...{ epochs: true, maxSteps: true, batch: true, accumulate: true, lr: true, schedule: true },
    ...{ warmup: true, weightDecay: true, clip: true, seed: true, evalEvery: true },
    ...{ checkpoint: true, lora: true },
  });
  for (const name of ["epochs", "maxSteps", "batch", "accumulate", "evalEvery"] as const) {
    const value = settings[name];
    if (value === undefined) continue;
    if (!(Number.isSafeInteger(value) && value >= 1))
      throw rejection(name, value, "a whole number, 1 or more");
  }
  const { seed, lr, schedule, warmup, weightDecay, clip } = settings;
  if (!Number.isSafeInteger(seed) || seed < 0) throw rejection("seed", seed, "a whole number, 0 or more");
  if (!(lr > 0 && Number.isFinite(lr))) throw rejection("lr", lr, "a number above 0, such as 0.0001");
  if (!schedules.includes(schedule)) throw rejection("schedule", schedule, schedules.join(", "));
  if (!(warmup >= 0 && warmup < 1)) throw rejection("warmup", warmup, "a share from 0 to below 1");
  if (!(weightDecay >= 0 && Number.isFinite(weightDecay)))
    throw rejection("weightDecay", weightDecay, "a number, 0 or more");
  if (!(clip > 0)) throw rejection("clip", clip, "a number above 0, or Infinity for no clipping");
}

function rejection(name: string, value: unknown, expected: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `${name} is ${String(value)}. It must be ${expected}.`, {
    numbers: { [name]: String(value) },
  });
}

/** The share of the learning rate in a step, counted from 0. The last step of a falling schedule is above 0. */
export function lrShare(step: number, steps: number, { schedule, warmup }: JobSettings): number {
  const rising = Math.ceil(warmup * steps);
  if (step < rising) return (step + 1) / rising;
  if (schedule === "constant") return 1;
  const share = (step - rising) / Math.max(1, steps - rising);
  return schedule === "linear" ? 1 - share : (1 + Math.cos(Math.PI * share)) / 2;
}
