/** Aggregates bars into groups: the input of one sample on one scale. */

import type { Bars } from "../bars/bars.js";
import { groupCount } from "./scales.js";

/** The groups, oldest first. One record is reused for all samples, to avoid garbage. */
export interface Groups {
  readonly open: Float64Array; // [32]
  readonly high: Float64Array; // [32]
  readonly low: Float64Array; // [32]
  /** [33]: the close before the first group, for its return; then those of the groups. */
  readonly close: Float64Array;
  readonly volume: Float64Array; // [32]
  /** The typical price (high + low + close) / 3, weighted by volume; the plain mean if nothing was traded. */
  readonly vwap: Float64Array; // [32]
}

export function emptyGroups(): Groups {
  const column = () => new Float64Array(groupCount);
  return {
    open: column(),
    high: column(),
    low: column(),
    close: new Float64Array(groupCount + 1),
    volume: column(),
    vwap: column(),
  };
}

/**
 * Fills `groups` with groups of `width` bars; the last group ends with bar `end`. No bar after `end` is read.
 *
 * Every group is summed from its own bars. Prefix sums would be faster, but their rounding would make a sample depend on earlier
 * bars.
 */
export function readGroups(bars: Bars, end: number, width: number, groups: Groups): void {
  const { high, low, close, volume } = bars;
  const beforeFirst = end - groupCount * width;
  groups.close[0] = close[beforeFirst] as number;
  for (let group = 0; group < groupCount; group++) {
    const first = beforeFirst + group * width + 1;
    const last = first + width - 1;
    let highest = 0;
    let lowest = Number.POSITIVE_INFINITY;
    let volumeSum = 0;
    let typicalSum = 0;
    let weightedSum = 0;
    for (let bar = first; bar <= last; bar++) {
      const barHigh = high[bar] as number;
      const barLow = low[bar] as number;
      const barVolume = volume[bar] as number;
      const typical = (barHigh + barLow + (close[bar] as number)) / 3;
      if (barHigh > highest) highest = barHigh;
      if (barLow < lowest) lowest = barLow;
      volumeSum += barVolume;
      typicalSum += typical;
      weightedSum += typical * barVolume;
    }
    groups.open[group] = bars.open[first] as number;
    groups.high[group] = highest;
    groups.low[group] = lowest;
    groups.close[group + 1] = close[last] as number;
    groups.volume[group] = volumeSum;
    groups.vwap[group] = volumeSum > 0 ? weightedSum / volumeSum : typicalSum / width;
  }
}
