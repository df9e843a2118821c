/**
 * The made market. Two hidden regimes, each up, down or quiet, switch at random: bursts of about twenty minutes and
 * trends of about ten hours. A minute's return is volatility · (noise + what the regimes add), and volatility clusters
 * as in GARCH(1,1). The regimes can be guessed from the bars before, but never known, so the moves after are partly
 * predictable; docs/crossasset.md says how far.
 *
 * The same seed makes the same bits on every machine: random words are Philox's, and all else is +, −, ·, / and √.
 */

import { HoldfastError } from "../../errors/index.js";
import { drawWords, normal } from "../../kernels/index.js";
import { formatBytes } from "../../units/index.js";
import type { Bars } from "./bars.js";

/** A hidden regime: it is up (1), down (−1) or quiet (0), and goes from each to the other two about equally often. */
export interface RegimeKind {
  /** How long it stays as it is, on average. */
  readonly meanMinutes: number;
  /** What it adds to a minute's return while it is up, in units of the noise. */
  readonly drift: number;
}

export const burstKind: RegimeKind = { meanMinutes: 20, drift: 1.2 };
export const trendKind: RegimeKind = { meanMinutes: 600, drift: 0.8 };

/** The made bars, and what they hide: at each bar the regimes that its own return had, and the next one's noise. */
export interface Market {
  readonly bars: Bars;
  readonly burst: Int8Array;
  readonly trend: Int8Array;
  /** The noise of the next minute's return. */
  readonly volatility: Float64Array;
}

export interface GenerateOptions {
  readonly bars: number;
  readonly seed: number;
}

/** The noise of a minute's return in the mean. */
const meanNoise = 2e-5;
/** GARCH: the next variance is this much of its mean, of the last noise squared, and of the last variance. */
const garch = { mean: 0.005, noise: 0.04, last: 0.955 };
const firstPrice = 100;
/** Prices have five decimals. */
const ticksPerUnit = 1e5;

/** Monday, 2020-01-06, 00:00 UTC. The market is open 23 hours a day, five days a week. */
const firstTimeMs = 1_578_268_800_000;
const minuteMs = 60_000;
const dayMs = 1440 * minuteMs;
const barsPerDay = 23 * 60;

/** The random streams: far from those of weights, which count up from 0. */
const streams = { noise: 2 ** 40, words: 2 ** 40 + 1 };
const wordsPerBar = 5;
/** Some 270 years of minutes, in which the market is open. */
const maxBars = 100_000_000;
/** Drawn together; the numbers don't depend on it. */
const barsAtOnce = 16_384;

/**
 * Makes bars of a market with hidden regimes. The same seed makes the same bars, and more bars begin with the fewer.
 *
 * @example
 * ```ts
 * import { crossasset } from "holdfast";
 * const { close } = crossasset.generateBars({ bars: 1000, seed: 42 });
 * console.log(close.length, Math.min(...close) > 0); // → 1000 true
 * ```
 */
export function generateBars(options: GenerateOptions): Bars {
  return generateMarket(options).bars;
}

/** The same with the hidden regimes, for those who measure how much there is to learn. */
export function generateMarket({ bars: count, seed }: GenerateOptions): Market {
  if (!(Number.isSafeInteger(count) && count > 0 && count <= maxBars)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${count} bars can't be made; give a whole number from 1 to ${maxBars.toLocaleString("en")}.`,
      { numbers: { bars: count, max: maxBars } },
    );
  }
  const market = emptyMarket(count);
  const { time, open, high, low, close, volume } = market.bars;
  let price = firstPrice;
  let variance = 1;
  let burst = 0;
  let trend = 0;
  let noise = new Float32Array(0);
  let words = new Uint32Array(0);
  for (let bar = 0; bar < count; bar++) {
    const drawn = bar % barsAtOnce;
    if (drawn === 0) {
      const length = Math.min(barsAtOnce, count - bar);
      noise = normal({ seed, id: streams.noise }, length, bar);
      words = drawWords({ seed, id: streams.words }, length * wordsPerBar, bar * wordsPerBar);
    }
    const fraction = (use: number): number => (words[drawn * wordsPerBar + use] ?? 0) / 2 ** 32;

    burst = switchRegime(burst, burstKind, fraction(0));
    trend = switchRegime(trend, trendKind, fraction(1), pullAt(price));
    const surprise = noise[drawn] ?? 0;
    const volatility = meanNoise * Math.sqrt(variance);
    const before = price;
    price *= 1 + volatility * (surprise + burst * burstKind.drift + trend * trendKind.drift);

    time[bar] = timeOf(bar);
    open[bar] = toTicks(before);
    high[bar] = toTicks(Math.max(before, price) * (1 + volatility * fraction(2)));
    low[bar] = toTicks(Math.min(before, price) * (1 - volatility * fraction(3)));
    close[bar] = toTicks(price);
    // More is traded while the market is nervous or has a trend.
    volume[bar] = Math.round(
      200 * Math.sqrt(variance) * (1 + 0.8 * Math.abs(trend)) * (0.25 + 1.5 * fraction(4)),
    );

    variance = garch.mean + variance * (garch.noise * surprise * surprise + garch.last);
    market.burst[bar] = burst;
    market.trend[bar] = trend;
    market.volatility[bar] = meanNoise * Math.sqrt(variance);
  }
  return market;
}

/** The regime of the next minute: most often the same, else one of the two others; `pull` makes the lower one likelier. */
function switchRegime(now: number, { meanMinutes }: RegimeKind, fraction: number, pull = 0): number {
  const place = fraction * meanMinutes;
  if (place >= 1) return now;
  if (place < 0.5 + pull) return now === -1 ? 0 : -1;
  return now === 1 ? 0 : 1;
}

/** Trends lead back to the first price, in some weeks: a series of years stays near it and has as many ups as downs. */
function pullAt(price: number): number {
  return Math.max(-0.4, Math.min(0.4, 2 * (price / firstPrice - 1)));
}

function timeOf(bar: number): number {
  const day = Math.floor(bar / barsPerDay);
  const weekends = Math.floor(day / 5);
  return firstTimeMs + (day + 2 * weekends) * dayMs + (bar % barsPerDay) * minuteMs;
}

function toTicks(price: number): number {
  return Math.round(price * ticksPerUnit) / ticksPerUnit;
}

/** Throws OUT_OF_MEMORY where the process can't have so many numbers. */
function emptyMarket(count: number): Market {
  const column = (): Float64Array<ArrayBuffer> => new Float64Array(count);
  try {
    return {
      bars: {
        ...{ time: column(), open: column(), high: column(), low: column(), close: column() },
        volume: column(),
      },
      burst: new Int8Array(count),
      trend: new Int8Array(count),
      volatility: column(),
    };
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    const needed = formatBytes(count * (7 * Float64Array.BYTES_PER_ELEMENT + 2));
    throw new HoldfastError(
      "OUT_OF_MEMORY",
      `${count.toLocaleString("en")} bars need ${needed} of memory, and the allocation failed (${cause.message}). Lower --generate.`,
      { numbers: { bars: count }, cause },
    );
  }
}
