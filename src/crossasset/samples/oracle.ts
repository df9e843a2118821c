/**
 * An upper bound for learning on the generated market: the accuracy of an oracle that knows the hidden regimes and the volatility at
 * each bar, but not future switches and noise. A model sees only the bars, so its accuracy should be between the majority class
 * and the oracle.
 */

import { burstKind, type Market, type RegimeKind, trendKind } from "../bars/generate.js";
import { countSamples, defaultStride, type SampleSettings } from "./features.js";
import { classes, groupCount, historyBars, kappa, scales } from "./scales.js";

export interface ScaleAccuracy {
  /** In minutes. */
  readonly scale: number;
  /** The oracle's accuracy. */
  readonly oracle: number;
  /** The accuracy of always predicting the most frequent class of this scale. */
  readonly majority: number;
}

export interface OracleAccuracy {
  readonly samples: number;
  /** Over all scales. The majority is one class for all scales. */
  readonly oracle: number;
  readonly majority: number;
  readonly scales: readonly ScaleAccuracy[];
}

const minDeviation = 1e-8;

/** The accuracy of the oracle and of the majority class on the moves after each sample. */
export function oracleAccuracy(
  market: Market,
  { stride = defaultStride }: SampleSettings = {},
): OracleAccuracy {
  const samples = countSamples(market.bars.close.length, stride);
  const logClose = market.bars.close.map(Math.log);
  const counts = scales.map((scale) => {
    const forecasts = { burst: forecastRegime(burstKind, scale), trend: forecastRegime(trendKind, scale) };
    const labels = [0, 0, 0];
    let correct = 0;
    for (let sample = 0; sample < samples; sample++) {
      const bar = historyBars - 1 + sample * stride;
      const limit = kappa * deviationAt(logClose, bar, scale);
      const now = logClose[bar] ?? 0;
      const label = classify((logClose[bar + scale] ?? 0) - now, limit);
      labels[label] = (labels[label] ?? 0) + 1;
      if (label === mostLikely(market, bar, scale, forecasts, limit)) correct++;
    }
    return { scale, correct, labels };
  });
  const total = samples * scales.length;
  const sumOf = (label: number): number => counts.reduce((sum, { labels }) => sum + (labels[label] ?? 0), 0);
  return {
    samples,
    oracle: counts.reduce((sum, { correct }) => sum + correct, 0) / total,
    majority: Math.max(sumOf(0), sumOf(1), sumOf(2)) / total,
    scales: counts.map(({ scale, correct, labels }) => ({
      scale,
      oracle: correct / samples,
      majority: Math.max(...labels) / samples,
    })),
  };
}

function classify(move: number, limit: number): number {
  if (move > limit) return classes.long;
  return move < -limit ? classes.short : classes.flat;
}

/** The deviation of the 32 last returns over `scale` bars that end at `bar`. */
function deviationAt(logClose: Float64Array, bar: number, scale: number): number {
  let sum = 0;
  let squares = 0;
  for (let group = 0; group < groupCount; group++) {
    const end = bar - group * scale;
    const move = (logClose[end] ?? 0) - (logClose[end - scale] ?? 0);
    sum += move;
    squares += move * move;
  }
  return Math.max(minDeviation, Math.sqrt(Math.max(0, squares / groupCount - (sum / groupCount) ** 2)));
}

/** A regime's contribution to the move over the next minutes, in units of the noise. */
interface Forecast {
  /** The expectation if it is up now; negated if it is down, 0 if it is quiet. */
  readonly mean: number;
  /** The variance, depending on whether it is quiet now. */
  readonly variance: { readonly quiet: number; readonly moving: number };
}

/**
 * With the chance 1/T of a switch, to either of the two others, correlation falls by λ = 1 − 1.5/T a minute:
 * E[s at h | s now] = s·λʰ, and E[s²] goes to 2/3 from 1 or from 0 in the same way.
 */
function forecastRegime({ meanMinutes, drift }: RegimeKind, minutes: number): Forecast {
  const decay = 1 - 1.5 / meanMinutes;
  let mean = 0;
  const squares = { quiet: 0, moving: 0 };
  for (let minute = 1; minute <= minutes; minute++) {
    const correlation = decay ** minute;
    mean += correlation;
    // Σ over later minutes of E[s_minute · s_later] / E[s_minute²], which is λ^(later − minute), counted both ways.
    const crossTerms = 1 + (2 * decay * (1 - decay ** (minutes - minute))) / (1 - decay);
    squares.quiet += (2 / 3) * (1 - correlation) * crossTerms;
    squares.moving += (2 / 3 + correlation / 3) * crossTerms;
  }
  const variance = {
    quiet: drift * drift * squares.quiet,
    moving: drift * drift * (squares.moving - mean * mean),
  };
  return { mean: drift * mean, variance };
}

/** The most probable class, with a normal distribution around the expected move. */
function mostLikely(
  market: Market,
  bar: number,
  scale: number,
  forecasts: { readonly burst: Forecast; readonly trend: Forecast },
  limit: number,
): number {
  const burst = market.burst[bar] ?? 0;
  const trend = market.trend[bar] ?? 0;
  const noise = market.volatility[bar] ?? 0;
  const mean = noise * (burst * forecasts.burst.mean + trend * forecasts.trend.mean);
  const burstVariance = forecasts.burst.variance[burst === 0 ? "quiet" : "moving"];
  const trendVariance = forecasts.trend.variance[trend === 0 ? "quiet" : "moving"];
  const deviation = noise * Math.sqrt(scale + burstVariance + trendVariance);
  const short = normalBelow((-limit - mean) / deviation);
  const long = normalBelow((mean - limit) / deviation);
  const flat = 1 - long - short;
  if (flat > long && flat > short) return classes.flat;
  return long >= short ? classes.long : classes.short;
}

/** The standard normal CDF within 2e-4: a logistic function with a cubic term. */
function normalBelow(z: number): number {
  return 1 / (1 + Math.exp(-1.5976 * z - 0.070_56 * z * z * z));
}
