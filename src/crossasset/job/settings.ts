/** What a CrossAsset job is asked to do; everything that its result follows from, besides the bars. */

import { HoldfastError } from "../../errors/index.js";

/** The settings of a job. A run resumes only with the same ones. */
export interface JobSettings {
  readonly folds: number;
  readonly epochs: number;
  /** Samples in a step. */
  readonly batch: number;
  /** Bars from one sample to the next. */
  readonly stride: number;
  readonly seed: number;
  readonly lr: number;
  readonly dropout: number;
  readonly qkNorm: boolean;
  /** Gives every sample the labels of another one: then there is nothing to learn. */
  readonly shuffledLabels: boolean;
}

/** The settings of a job that names none. */
export const defaultSettings: JobSettings = {
  folds: 2,
  epochs: 3,
  batch: 256,
  stride: 60,
  seed: 42,
  lr: 1e-3,
  dropout: 0,
  qkNorm: false,
  shuffledLabels: false,
};

/** Rejects what no job can be made of. */
export function requireSettings(settings: JobSettings): void {
  for (const name of ["folds", "epochs", "batch", "stride"] as const) {
    const value = settings[name];
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw new HoldfastError("BAD_ARGUMENT", `${name} is ${value}; give a whole number, 1 or more.`, {
      numbers: { value },
    });
  }
  const { seed, lr, dropout } = settings;
  if (!Number.isSafeInteger(seed) || seed < 0)
    throw new HoldfastError("BAD_ARGUMENT", `seed is ${seed}; give a whole number from 0 on.`);
  if (!(lr > 0 && Number.isFinite(lr)))
    throw new HoldfastError("BAD_ARGUMENT", `lr is ${lr}; give a number above 0, such as 0.001.`);
  if (!(dropout >= 0 && dropout < 1))
    throw new HoldfastError("BAD_ARGUMENT", `dropout is ${dropout}; give a number from 0 to below 1.`);
}
