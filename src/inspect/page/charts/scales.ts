/** Ranges and ticks: zoom around a point, and round numbers on an axis. */

export interface Range {
  readonly min: number;
  readonly max: number;
}

/**
 * Zooms a range around a point; a factor below 1 zooms in. The result stays within the whole range and is never narrower than
 * `least`.
 */
export function zoomRange(range: Range, about: number, factor: number, whole: Range, least: number): Range {
  const present = range.max - range.min;
  const width = Math.min(whole.max - whole.min, Math.max(least, present * factor));
  const share = present > 0 ? (about - range.min) / present : 0.5;
  return keepInside({ min: about - share * width, max: about + (1 - share) * width }, whole);
}

export function moveRange(range: Range, by: number, whole: Range): Range {
  return keepInside({ min: range.min + by, max: range.max + by }, whole);
}

/** Moves a range into the whole one; a wider range becomes the whole. */
function keepInside({ min, max }: Range, whole: Range): Range {
  const width = max - min;
  if (width >= whole.max - whole.min) return whole;
  if (min < whole.min) return { min: whole.min, max: whole.min + width };
  if (max > whole.max) return { min: whole.max - width, max: whole.max };
  return { min, max };
}

export function isSameRange(one: Range | undefined, other: Range | undefined): boolean {
  return one?.min === other?.min && one?.max === other?.max;
}

/** Round numbers in a range: steps of 1, 2 or 5 times a power of ten, about `count` of them. */
export function roundTicks({ min, max }: Range, count: number): number[] {
  const rough = (max - min) / Math.max(1, count);
  if (!(rough > 0)) return [min];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) ?? 10) * power;
  return multiplesOf(step, min, max);
}

/** Byte sizes in a range, in steps of powers of two: about `count` of them. */
export function byteTicks({ min, max }: Range, count: number): number[] {
  const rough = (max - min) / Math.max(1, count);
  if (!(rough > 0)) return [min];
  return multiplesOf(2 ** Math.ceil(Math.log2(rough)), min, max);
}

function multiplesOf(step: number, min: number, max: number): number[] {
  const ticks: number[] = [];
  for (let index = Math.ceil(min / step - 1e-9); index * step <= max + step * 1e-9; index++)
    ticks.push(Number((index * step).toPrecision(12)));
  return ticks;
}

/** The end of an axis that hides at most one value in twenty, and only if it is over three times as large as the others. */
export function towerLimit(values: Iterable<number | null | undefined>): number {
  const known = Float64Array.from(
    [...values].filter((value): value is number => Number.isFinite(value)),
  ).sort();
  return 3 * (known[Math.ceil(0.95 * known.length) - 1] ?? Infinity);
}
