/** Exponential smoothing of a series with gaps. */

import type { Column } from "../wire.js";

/**
 * Mixes each value with earlier ones: `weight` of the history, the rest of the value. The start is bias-corrected. A gap stays a gap
 * and changes nothing. The smoothing restarts with each new fold.
 */
export function smooth(values: Column, weight: number, folds: Column = []): (number | null)[] {
  if (!(weight > 0)) return [...values];
  let mixed = 0;
  let weights = 0;
  return values.map((value, index) => {
    if (index > 0 && folds[index] !== folds[index - 1]) {
      mixed = 0;
      weights = 0;
    }
    if (value === null || !Number.isFinite(value)) return null;
    mixed = weight * mixed + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return mixed / weights;
  });
}
