/** Exponential smoothing of a series that may have holes. */

import type { Column } from "./wire.js";

/**
 * Each value mixed with those before it, which weigh less the longer ago they are: `weight` of what was, the rest of what is. The
 * start is corrected, so that it leans neither to zero nor to the first value. A hole stays a hole and changes nothing.
 */
export function smooth(values: Column, weight: number): (number | null)[] {
  if (!(weight > 0)) return [...values];
  let mixed = 0;
  let weights = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    mixed = weight * mixed + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return mixed / weights;
  });
}
