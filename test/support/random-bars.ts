/** Bars for tests of samples: a random walk with features of real markets. The same seed gives the same bars. */

import { type Bars, barColumns } from "../../src/crossasset/bars/bars.js";

const minuteMs = 60_000;

export interface RandomBarsOptions {
  readonly seed?: number;
  /** Gaps in time, halts in which no price moves, and minutes without trade; default: all of them. */
  readonly isRough?: boolean;
}

export function randomBars(count: number, { seed = 1, isRough = true }: RandomBarsOptions = {}): Bars {
  const draw = drawsFrom(seed);
  const bars = emptyBars(count);
  let price = 100;
  let time = 0;
  let haltLeft = 0;
  let quietLeft = 0;
  for (let bar = 0; bar < count; bar++) {
    if (isRough && haltLeft === 0 && draw() < 0.004) haltLeft = Math.floor(80 * draw());
    if (isRough && quietLeft === 0 && draw() < 0.01) quietLeft = Math.floor(60 * draw());
    const step = () => {
      if (haltLeft === 0) price *= Math.exp(0.002 * (draw() - 0.5));
      return price;
    };
    const prices = [step(), step(), step(), step()];
    time += isRough && draw() < 0.01 ? Math.ceil(600 * draw()) * minuteMs : minuteMs;
    bars.time[bar] = time;
    bars.open[bar] = prices[0]!;
    bars.high[bar] = Math.max(...prices);
    bars.low[bar] = Math.min(...prices);
    bars.close[bar] = price;
    bars.volume[bar] = quietLeft > 0 ? 0 : Math.floor(1000 * draw());
    haltLeft = Math.max(0, haltLeft - 1);
    quietLeft = Math.max(0, quietLeft - 1);
  }
  return bars;
}

/** Bars that are all 0, to be filled. */
export function emptyBars(count: number): Bars {
  const column = () => new Float64Array(count);
  return { time: column(), open: column(), high: column(), low: column(), close: column(), volume: column() };
}

/** Bars whose four prices are these closes, which makes expected values simple. */
export function barsOfCloses(closes: readonly number[], volume = 1): Bars {
  const column = () => Float64Array.from(closes);
  return {
    time: Float64Array.from(closes, (_, bar) => bar * minuteMs),
    open: column(),
    high: column(),
    low: column(),
    close: column(),
    volume: new Float64Array(closes.length).fill(volume),
  };
}

export function copyBars(bars: Bars, start = 0, end = bars.close.length): Bars {
  const copy = emptyBars(end - start);
  for (const column of barColumns) copy[column].set(bars[column].subarray(start, end));
  return copy;
}

/** Numbers from 0 to 1. */
export function drawsFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
