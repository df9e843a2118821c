/** The CrossAsset job's data, and the device that it runs on, for the programs that measure the job. */

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

/** `--device cpu` tries the program without a GPU; its figures mean nothing. */
export const deviceOption = { device: { type: "string", default: "cuda" } } as const;

export interface AskedDevice {
  readonly device: Device;
  /** The driver's free memory, in bytes; undefined on a CPU. */
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

/** The smallest number of bars that gives `samples` samples. */
export function barsFor(samples: number): number {
  const bars = historyBars + longestHorizon + (samples - 1) * stride;
  const count = countSamples(bars, stride);
  if (count !== samples) throw new Error(`${bars} bars give ${count} samples instead of ${samples}.`);
  return bars;
}

/** The samples of the generated market, in the job's folds. */
export function makeFolds(
  samples: number,
  folds: number,
): { readonly samples: Samples; readonly folds: readonly Fold[] } {
  const samplesOf = makeSamples(crossasset.generateBars({ bars: barsFor(samples), seed }), { stride });
  return { samples: samplesOf, folds: walkForward(samplesOf, folds) };
}

/** The training or test split of a fold, normalised by the fold's training split as in the job. */
export function rowsOf(samples: Samples, fold: Fold, range: SampleRange): Rows {
  const x = samples.x.slice(range.start * sampleWidth, range.end * sampleWidth) as Float32Array<ArrayBuffer>;
  applyNormaliser(fitNormaliser(samples.x, fold.train), x);
  const labels = samples.labels.slice(range.start * scales.length, range.end * scales.length);
  return { count: range.end - range.start, x, labels: labels as Int32Array<ArrayBuffer> };
}

/** The accuracy of a model that knows the regimes, on each fold's test samples. */
export function oracleOfFolds(samples: number, folds: number): readonly number[] {
  const market = generateMarket({ bars: barsFor(samples), seed });
  const bar = Int32Array.from({ length: samples }, (_, sample) => historyBars - 1 + sample * stride);
  return walkForward({ count: samples, bar }, folds).map(({ test }) => {
    const slice = cut(market, bar[test.start]! - (historyBars - 1), bar[test.end - 1]! + longestHorizon + 1);
    const { samples: count, oracle } = oracleAccuracy(slice, { stride });
    if (count !== test.end - test.start)
      throw new Error(`The oracle has answers for ${count} samples instead of ${test.end - test.start}.`);
    return oracle;
  });
}

function cut({ bars, burst, trend, volatility }: Market, start: number, end: number): Market {
  const { time, open, high, low, close, volume } = bars;
  const [cutValues, hidden] = [(values: Float64Array) => values.slice(start, end), [burst, trend] as const];
  return {
    bars: {
      ...{ time: cutValues(time), open: cutValues(open), high: cutValues(high) },
      ...{ low: cutValues(low), close: cutValues(close), volume: cutValues(volume) },
    },
    burst: hidden[0].slice(start, end),
    trend: hidden[1].slice(start, end),
    volatility: cutValues(volatility),
  };
}
