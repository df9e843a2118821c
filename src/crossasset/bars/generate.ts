/**
 * The generated market. Two hidden regimes, each up, down or quiet, switch at random: bursts of about twenty minutes and trends of
 * about ten hours. A minute's return is volatility · (noise + drift of the regimes), and volatility clusters as in GARCH(1,1). The
 * regimes can be estimated from earlier bars, so later moves are partly predictable; docs/crossasset.md says how well.
 *
 * The same seed gives the same bits on every machine: random words come from Philox, and the rest uses +, −, ·, / and √ only.
 */

import { HoldfastError } from "../../errors/index.js";
import { drawWords, normal } from "../../kernels/index.js";
import { formatBytes } from "../../units/index.js";
import type { Bars } from "./bars.js";

/** A hidden regime: up (1), down (−1) or quiet (0). It switches to each of the other two about equally often. */
export interface RegimeKind {
  /** The mean time between switches. */
  readonly meanMinutes: number;
  /** Its contribution to a minute's return while it is up, in units of the noise. */
  readonly drift: number;
}

export const burstKind: RegimeKind = { meanMinutes: 20, drift: 1.2 };
export const trendKind: RegimeKind = { meanMinutes: 600, drift: 0.8 };

/** The generated bars and their hidden state: at each bar the regimes of its return, and the noise of the next one. */
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

/** The mean noise of a minute's return. */
const meanNoise = 2e-5;
/** GARCH: the weights of the mean, of the last squared noise and of the last variance in the next variance. */
const garch = { mean: 0.005, noise: 0.04, last: 0.955 };
const firstPrice = 100;
/** Prices have five decimals. */
const ticksPerUnit = 1e5;

/** Monday, 2020-01-06, 00:00 UTC. The market is open 23 hours a day, five days a week. */
const firstTimeMs = 1_578_268_800_000;
const minuteMs = 60_000;
const dayMs = 1440 * minuteMs;
const barsPerDay = 23 * 60;

/** The ids of the random streams: far from those of weights, which count up from 0. */
const streams = { noise: 2 ** 40, words: 2 ** 40 + 1 };
const wordsPerBar = 5;
/** About 270 years of trading minutes. */
const maxBars = 100_000_000;
/** Bars per batch of random numbers. It does not affect the result. */
const barsPerBatch = 16_384;

/**
 * Generates bars of a market with hidden regimes. The same seed gives the same bars; a longer series starts with the shorter one.
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

/** Generates bars with their hidden regimes, to measure how much a model can learn. */
export function generateMarket({ bars: count, seed }: GenerateOptions): Market {
  if (!(Number.isSafeInteger(count) && count > 0 && count <= maxBars)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The number of bars is ${count}. It must be a whole number from 1 to ${maxBars.toLocaleString("en")}.`,
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
    const inBatch = bar % barsPerBatch;
    if (inBatch === 0) {
      const length = Math.min(barsPerBatch, count - bar);
      noise = normal({ seed, id: streams.noise }, length, bar);
      words = drawWords({ seed, id: streams.words }, length * wordsPerBar, bar * wordsPerBar);
    }
    const fraction = (use: number): number => (words[inBatch * wordsPerBar + use] ?? 0) / 2 ** 32;

    burst = switchRegime(burst, burstKind, fraction(0));
    trend = switchRegime(trend, trendKind, fraction(1), pullAt(price));
    const shock = noise[inBatch] ?? 0;
    const volatility = meanNoise * Math.sqrt(variance);
    const before = price;
    price *= 1 + volatility * (shock + burst * burstKind.drift + trend * trendKind.drift);

    time[bar] = timeOf(bar);
    open[bar] = toTicks(before);
    high[bar] = toTicks(Math.max(before, price) * (1 + volatility * fraction(2)));
    low[bar] = toTicks(Math.min(before, price) * (1 - volatility * fraction(3)));
    close[bar] = toTicks(price);
    // Volume rises with volatility and trend.
    volume[bar] = Math.round(
      200 * Math.sqrt(variance) * (1 + 0.8 * Math.abs(trend)) * (0.25 + 1.5 * fraction(4)),
    );

    variance = garch.mean + variance * (garch.noise * shock * shock + garch.last);
    market.burst[bar] = burst;
    market.trend[bar] = trend;
    market.volatility[bar] = meanNoise * Math.sqrt(variance);
  }
  return market;
}

/** The regime of the next minute: usually the same, else one of the two others. `pull` makes the lower one more likely. */
function switchRegime(now: number, { meanMinutes }: RegimeKind, fraction: number, pull = 0): number {
  const position = fraction * meanMinutes;
  if (position >= 1) return now;
  if (position < 0.5 + pull) return now === -1 ? 0 : -1;
  return now === 1 ? 0 : 1;
}

/** Pulls trends back to the first price within some weeks, so that a long series stays near it. */
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

/** Throws OUT_OF_MEMORY if the arrays can't be allocated. */
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
      `${count.toLocaleString("en")} bars need ${needed} of memory, but the allocation failed (${cause.message}). Lower --generate.`,
      { numbers: { bars: count }, cause },
    );
  }
}
