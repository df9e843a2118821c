/**
 * `npm run bench:features`: the cost of turning bars into samples. A million bars of a random walk at a
 * stride of 60: features, fitting and applying a normaliser, writing and reading the cache.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import type { Bars } from "../src/crossasset/bars/bars.js";
import {
  applyNormaliser,
  cachedSamples,
  fitNormaliser,
  makeSamples,
} from "../src/crossasset/samples/index.js";
import { answerHelp } from "../test/support/command-line.js";

answerHelp(import.meta.url);

const barCount = 1_000_000;
const stride = 60;
const minuteMs = 60_000;

/** Bars with four random steps each. Any walk will do: the work does not depend on the prices. */
function randomWalk(count: number): Bars {
  let state = 1;
  const draw = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
  const column = () => new Float64Array(count);
  const bars = {
    time: column(),
    open: column(),
    high: column(),
    low: column(),
    close: column(),
    volume: column(),
  };
  let price = 100;
  for (let bar = 0; bar < count; bar++) {
    const prices = Array.from({ length: 4 }, () => {
      price *= Math.exp(0.001 * (draw() - 0.5));
      return price;
    });
    bars.time[bar] = bar * minuteMs;
    bars.open[bar] = prices[0]!;
    bars.high[bar] = Math.max(...prices);
    bars.low[bar] = Math.min(...prices);
    bars.close[bar] = price;
    bars.volume[bar] = Math.floor(1000 * draw());
  }
  return bars;
}

function timed<Result>(what: string, work: () => Result): Result {
  const startedAt = performance.now();
  const result = work();
  const elapsedMs = performance.now() - startedAt;
  const rate = barCount / elapsedMs / 1000;
  const peak = process.resourceUsage().maxRSS / 1024;
  console.log(
    `  ${what.padEnd(28)} ${elapsedMs.toFixed(0).padStart(6)} ms   ${rate.toFixed(2).padStart(7)} M bars/s   peak ${peak.toFixed(0)} MiB`,
  );
  return result;
}

console.log(
  `${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} × ${cpus()[0]?.model}`,
);
const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-features-"));
try {
  console.log(`\n${barCount} bars at a stride of ${stride}`);
  const bars = timed("bars (random walk)", () => randomWalk(barCount));
  const samples = timed("makeSamples", () => makeSamples(bars, { stride }));
  const train = { start: 0, end: samples.count };
  const normaliser = timed("fitNormaliser, all rows", () => fitNormaliser(samples.x, train));
  timed("applyNormaliser, in place", () => applyNormaliser(normaliser, samples.x));
  timed("cachedSamples, computed", () => cachedSamples(bars, { stride }, folder));
  timed("cachedSamples, from the cache", () => cachedSamples(bars, { stride }, folder));
  console.log(`\n${samples.count} samples, ${(samples.x.byteLength / 2 ** 20).toFixed(0)} MiB of features`);
} finally {
  rmSync(folder, { recursive: true });
}
