/** Checks bars before samples are made. Readers check their files, but bars from a program are unchecked. */

import { HoldfastError } from "../../errors/index.js";
import { type Bars, barColumns } from "../bars/bars.js";

const priceColumns = ["open", "high", "low", "close"] as const;

export function requireUsableBars(bars: Bars): void {
  requireOneLength(bars);
  for (const column of priceColumns) {
    requireAll(
      bars[column],
      (price) => price > 0 && price < Number.POSITIVE_INFINITY,
      column,
      "a positive number",
    );
  }
  const isVolume = (volume: number) => volume >= 0 && volume < Number.POSITIVE_INFINITY;
  requireAll(bars.volume, isVolume, "volume", "zero or a positive number");
  const { low } = bars;
  requireAll(bars.high, (high, bar) => high >= (low[bar] as number), "high", "the bar's low or more");
}

function requireOneLength(bars: Bars): void {
  const count = bars.close.length;
  for (const column of barColumns) {
    const { length } = bars[column];
    if (length === count) continue;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The bars have ${length} values of ${column} and ${count} of close. Every column needs one value per bar.`,
      { numbers: { column, length, count } },
    );
  }
}

function requireAll(
  values: Float64Array,
  isUsable: (value: number, bar: number) => boolean,
  column: string,
  expected: string,
): void {
  const bar = values.findIndex((value, index) => !isUsable(value, index));
  if (bar < 0) return;
  const value = values[bar] as number;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Bar ${bar} has ${column} ${value}. It must be ${expected}. Correct or remove the bar; gaps are allowed.`,
    { numbers: { bar, column, value } },
  );
}
