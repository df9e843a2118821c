/** One sample, computed slowly and simply from the description of the data; in float64. */

import type { Bars } from "../../src/crossasset/bars/bars.js";

interface Bar {
  readonly open: number;
  readonly high: number;
  readonly low: number;
  readonly close: number;
  readonly volume: number;
}

export interface ReferenceScale {
  /** 32 · 6 numbers, then ln σ. */
  readonly features: readonly number[];
  readonly label: "long" | "short" | "flat";
  readonly sigma: number;
  readonly volumes: readonly number[];
}

export function referenceScale(bars: Bars, i: number, w: number): ReferenceScale {
  // The last group is bars i-w+1 … i, the one before it i-2w+1 … i-w, and so on, 33 of them.
  const groups: Bar[][] = [];
  for (let back = 32; back >= 0; back--) groups.push(barsFrom(bars, i - back * w - w + 1, i - back * w));
  const [before, ...seen] = groups as [Bar[], ...Bar[][]];

  const closes = [before, ...seen].map((group) => group.at(-1)!.close);
  const logReturns = closes.slice(1).map((close, index) => Math.log(close) - Math.log(closes[index]!));
  const sigma = standardDeviation(logReturns);
  const volumes = seen.map((group) => sum(group.map(({ volume }) => volume)));
  const logVolumes = volumes.map((volume) => Math.log(1 + volume));

  const features = seen.flatMap((group, index) => {
    const open = group[0]!.open;
    const close = group.at(-1)!.close;
    const high = Math.max(...group.map((bar) => bar.high));
    const low = Math.min(...group.map((bar) => bar.low));
    return [
      logReturns[index]! / sigma,
      (Math.log(high) - Math.log(low)) / sigma,
      (Math.log(close) - Math.log(open)) / sigma,
      high === low ? 0 : (2 * (close - low)) / (high - low) - 1,
      (logVolumes[index]! - sum(logVolumes) / 32) / standardDeviation(logVolumes),
      (Math.log(close) - Math.log(vwap(group))) / sigma,
    ];
  });

  const f = Math.log(bars.close[i + w]!) - Math.log(bars.close[i]!);
  const label = f > 0.43 * sigma ? "long" : f < -0.43 * sigma ? "short" : "flat";
  return { features: [...features, Math.log(sigma)], label, sigma, volumes };
}

function barsFrom({ open, high, low, close, volume }: Bars, first: number, last: number): Bar[] {
  const group: Bar[] = [];
  for (let i = first; i <= last; i++) {
    group.push({ open: open[i]!, high: high[i]!, low: low[i]!, close: close[i]!, volume: volume[i]! });
  }
  return group;
}

function vwap(group: readonly Bar[]): number {
  const typical = group.map(({ high, low, close }) => (high + low + close) / 3);
  const volume = sum(group.map((bar) => bar.volume));
  if (volume === 0) return sum(typical) / group.length;
  return sum(typical.map((price, index) => price * group[index]!.volume)) / volume;
}

function standardDeviation(values: readonly number[]): number {
  const mean = sum(values) / values.length;
  const variance = sum(values.map((value) => (value - mean) * (value - mean))) / values.length;
  return Math.max(1e-8, Math.sqrt(variance));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
