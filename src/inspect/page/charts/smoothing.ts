/** Exponential smoothing of a series that may have holes. */

import type { Column } from "../wire.js";

/**
 * Each value mixed with those before it, which weigh less the longer ago they are: `weight` of what was, the rest of what is. The
 * start is corrected, so that it leans neither to zero nor to the first value. A hole stays a hole and changes nothing. Where
 * another part begins (a fold, by its number) so does the smoothing: what was before has nothing to say there.
 */
export function smooth(values: Column, weight: number, parts: Column = []): (number | null)[] {
  if (!(weight > 0)) return [...values];
  let mixed = 0;
  let weights = 0;
  return values.map((value, place) => {
    if (place > 0 && parts[place] !== parts[place - 1]) {
      mixed = 0;
      weights = 0;
    }
    if (value === null || !Number.isFinite(value)) return null;
    mixed = weight * mixed + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return mixed / weights;
  });
}
