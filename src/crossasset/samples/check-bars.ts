/** Summarises a series of bars, for a check before training. */

import { HoldfastError } from "../../errors/index.js";
import type { Bars } from "../bars/bars.js";
import { countSamples, defaultStride } from "./features.js";

/** The summary of a bar file, from `checkBars`. */
export interface BarsSummary {
  readonly bars: number;
  /** Milliseconds since 1970 (UTC). */
  readonly firstTime: number;
  readonly lastTime: number;
  /** Gaps of more than a minute between two bars. */
  readonly gaps: {
    readonly count: number;
    readonly longestMinutes: number;
    /** The time of the bar before the longest gap; undefined without gaps. */
    readonly longestAfter: number | undefined;
  };
  readonly lowestPrice: number;
  readonly highestPrice: number;
  /** Bars with volume 0. */
  readonly zeroVolumes: number;
  readonly samples: { readonly count: number; readonly stride: number };
}

const minuteMs = 60_000;

/**
 * Summarises bars: time and price range, gaps, and the number of samples.
 *
 * @example
 * ```ts
 * import { crossasset } from "holdfast";
 * const summary = crossasset.checkBars(crossasset.generateBars({ bars: 20_000, seed: 42 }));
 * console.log(summary.bars, summary.samples.count); // → 20000 202
 * ```
 */
export function checkBars(bars: Bars, stride = defaultStride): BarsSummary {
  const { time, low, high, volume } = bars;
  const count = time.length;
  if (count === 0) throw new HoldfastError("BAD_ARGUMENT", "There are 0 bars to check. Pass at least one.");
  let gaps = 0;
  let longest = 0;
  let longestAfter: number | undefined;
  let lowestPrice = Number.POSITIVE_INFINITY;
  let highestPrice = 0;
  let zeroVolumes = 0;
  for (let bar = 0; bar < count; bar++) {
    lowestPrice = Math.min(lowestPrice, low[bar] ?? lowestPrice);
    highestPrice = Math.max(highestPrice, high[bar] ?? highestPrice);
    if (volume[bar] === 0) zeroVolumes++;
    const before = time[bar - 1];
    const step = before === undefined ? 0 : (time[bar] ?? 0) - before;
    if (step <= minuteMs) continue;
    gaps++;
    if (step <= longest) continue;
    longest = step;
    longestAfter = before;
  }
  return {
    bars: count,
    firstTime: time[0] ?? 0,
    lastTime: time[count - 1] ?? 0,
    gaps: { count: gaps, longestMinutes: longest / minuteMs, longestAfter },
    lowestPrice,
    highestPrice,
    zeroVolumes,
    samples: { count: countSamples(count, stride), stride },
  };
}
