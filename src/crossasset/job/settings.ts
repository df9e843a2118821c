/** The settings of a CrossAsset job. Together with the bars they determine its result. */

import { HoldfastError } from "../../errors/index.js";
import type { CrossAssetOptions } from "../model.js";

/** The settings of a job. A run resumes only with the same ones. */
export interface JobSettings {
  readonly folds: number;
  readonly epochs: number;
  /** Samples per step. */
  readonly batch: number;
  /** Bars between two samples. */
  readonly stride: number;
  readonly seed: number;
  readonly lr: number;
  readonly dropout: number;
  readonly qkNorm: boolean;
  /** The model's width, a multiple of its 4 heads. Default: 256. */
  readonly width?: number;
  /** The model's attention layers. Default: 2. */
  readonly layers?: number;
  /** Gives every sample the labels of another one, so that there is nothing to learn. */
  readonly shuffledLabels: boolean;
}

/** The default settings of a job. */
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

/** The sizes that a job or a run's record contains, without undefined ones. */
export function definedSizes(
  sizes: Readonly<Record<"width" | "layers", unknown>>,
): Pick<CrossAssetOptions, "width" | "layers"> {
  return Object.fromEntries(Object.entries(sizes).filter(([, size]) => Number.isSafeInteger(size)));
}

/** Throws if a setting is invalid. */
export function requireSettings(settings: JobSettings): void {
  for (const name of ["folds", "epochs", "batch", "stride", "width", "layers"] as const) {
    const value = settings[name];
    if (value === undefined) continue;
    if (Number.isSafeInteger(value) && value >= 1) continue;
    throw new HoldfastError("BAD_ARGUMENT", `${name} is ${value}. It must be a whole number, 1 or more.`, {
      numbers: { value },
    });
  }
  const { seed, lr, dropout } = settings;
  if (!Number.isSafeInteger(seed) || seed < 0)
    throw new HoldfastError("BAD_ARGUMENT", `seed is ${seed}. It must be a whole number, 0 or more.`);
  if (!(lr > 0 && Number.isFinite(lr)))
    throw new HoldfastError("BAD_ARGUMENT", `lr is ${lr}. It must be above 0, such as 0.001.`);
  if (!(dropout >= 0 && dropout < 1))
    throw new HoldfastError("BAD_ARGUMENT", `dropout is ${dropout}. It must be from 0 to below 1.`);
}
