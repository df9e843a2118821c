/** Ranges and ticks: zoom around a point, and round numbers on an axis. */

export interface Range {
  readonly min: number;
  readonly max: number;
}

/**
 * Zooms a range around a point; a factor below 1 zooms in. The result stays within the whole range and is never narrower than
 * `minWidth`.
 */
export function zoomRange(
  range: Range,
  center: number,
  factor: number,
  whole: Range,
  minWidth: number,
): Range {
  const currentWidth = range.max - range.min;
  const width = Math.min(whole.max - whole.min, Math.max(minWidth, currentWidth * factor));
  const share = currentWidth > 0 ? (center - range.min) / currentWidth : 0.5;
  return clampRange({ min: center - share * width, max: center + (1 - share) * width }, whole);
}

export function moveRange(range: Range, by: number, whole: Range): Range {
  return clampRange({ min: range.min + by, max: range.max + by }, whole);
}

/** Moves a range into the whole one; a wider range becomes the whole. */
function clampRange({ min, max }: Range, whole: Range): Range {
  const width = max - min;
  if (width >= whole.max - whole.min) return whole;
  if (min < whole.min) return { min: whole.min, max: whole.min + width };
  if (max > whole.max) return { min: whole.max - width, max: whole.max };
  return { min, max };
}

export function isSameRange(a: Range | undefined, b: Range | undefined): boolean {
  return a?.min === b?.min && a?.max === b?.max;
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

/** The upper end of an axis: three times the 95th percentile. At most one value in twenty is above it. */
export function outlierLimit(values: Iterable<number | null | undefined>): number {
  const finite = Float64Array.from(
    [...values].filter((value): value is number => Number.isFinite(value)),
  ).sort();
  return 3 * (finite[Math.ceil(0.95 * finite.length) - 1] ?? Infinity);
}
