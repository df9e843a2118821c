/** The CrossAsset job's own data, and the device that it is asked to run on: what the programs that measure the job share. */

import { crossasset, Device, type DeviceOptions } from "holdfast";
import { generateMarket, type Market } from "../../src/crossasset/bars/index.js";
import { countSamples } from "../../src/crossasset/samples/features.js";
import {
  applyNormaliser,
  type Fold,
  fitNormaliser,
  historyBars,
  longestHorizon,
  makeSamples,
  oracleAccuracy,
  type SampleRange,
  type Samples,
  sampleWidth,
  scales,
  walkForward,
} from "../../src/crossasset/samples/index.js";
import { type CommonOptions, openGpu } from "./options.js";
import type { Rows } from "./training.js";

const { stride, seed } = crossasset.defaultSettings;

/** `--device cpu` is a trial without a GPU, of the program and not of its figures. */
export const deviceOption = { device: { type: "string", default: "cuda" } } as const;

export interface AskedDevice {
  readonly device: Device;
  /** The driver's free memory, in bytes; of a CPU it is not told. */
  free(): number;
  close(): void;
}

export function openAsked(common: CommonOptions, name: string, options: DeviceOptions): AskedDevice {
  if (name === "cuda") {
    const { device, driver, close } = openGpu(common, { device: options });
    return { device, close, free: () => driver.memory().free };
  }
  if (name !== "cpu") throw new Error(`--device takes cuda or cpu; this is "${name}".`);
  const device = new Device("cpu", { print: () => {}, ...options });
  return { device, close: () => device.close(), free: () => Number.NaN };
}

/** The fewest bars that give so many samples. */
export function barsFor(samples: number): number {
  const bars = historyBars + longestHorizon + (samples - 1) * stride;
  const found = countSamples(bars, stride);
  if (found !== samples) throw new Error(`${bars} bars give ${found} samples instead of ${samples}.`);
  return bars;
}

/** The samples of the generated market, in the job's folds. */
export function makeFolds(
  samples: number,
  folds: number,
): { readonly samples: Samples; readonly folds: readonly Fold[] } {
  const made = makeSamples(crossasset.generateBars({ bars: barsFor(samples), seed }), { stride });
  return { samples: made, folds: walkForward(made, folds) };
}

/** A part of a fold as the job trains or tests on it: normalised by the fold's training part. */
export function rowsOf(samples: Samples, fold: Fold, part: SampleRange): Rows {
  const x = samples.x.slice(part.start * sampleWidth, part.end * sampleWidth) as Float32Array<ArrayBuffer>;
  applyNormaliser(fitNormaliser(samples.x, fold.train), x);
  const labels = samples.labels.slice(part.start * scales.length, part.end * scales.length);
  return { count: part.end - part.start, x, labels: labels as Int32Array<ArrayBuffer> };
}

/** How often a model that knows the regimes is right about each fold's test samples. */
export function oracleOfFolds(samples: number, folds: number): readonly number[] {
  const market = generateMarket({ bars: barsFor(samples), seed });
  const bar = Int32Array.from({ length: samples }, (_, sample) => historyBars - 1 + sample * stride);
  return walkForward({ count: samples, bar }, folds).map(({ test }) => {
    const part = cut(market, bar[test.start]! - (historyBars - 1), bar[test.end - 1]! + longestHorizon + 1);
    const { samples: found, oracle } = oracleAccuracy(part, { stride });
    if (found !== test.end - test.start)
      throw new Error(`The oracle was asked about ${found} samples instead of ${test.end - test.start}.`);
    return oracle;
  });
}

function cut({ bars, burst, trend, volatility }: Market, start: number, end: number): Market {
  const { time, open, high, low, close, volume } = bars;
  const [part, hidden] = [(values: Float64Array) => values.slice(start, end), [burst, trend] as const];
  return {
    bars: {
      ...{ time: part(time), open: part(open), high: part(high) },
      ...{ low: part(low), close: part(close), volume: part(volume) },
    },
    burst: hidden[0].slice(start, end),
    trend: hidden[1].slice(start, end),
    volatility: part(volatility),
  };
}
