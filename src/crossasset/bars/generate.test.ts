/** The generated market: valid bars, the same on every machine, with gaps and clustered volatility. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { effort } from "../../../test/support/effort.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { checkBars } from "../samples/check-bars.js";
import { barColumns } from "./bars.js";
import { findFault } from "./columns.js";
import { burstKind, generateBars, generateMarket, trendKind } from "./generate.js";

const market = generateMarket({ bars: 200_000, seed: 42 });
const { bars } = market;

test("every generated bar is valid, and open and close are within low and high", () => {
  for (let at = 0; at < bars.time.length; at++) {
    const fault = findFault(bars, at);
    if (fault !== undefined) assert.fail(`bar ${at}: ${JSON.stringify(fault)}`);
    const [open, close] = [bars.open[at]!, bars.close[at]!];
    const isWithin = bars.low[at]! <= Math.min(open, close) && bars.high[at]! >= Math.max(open, close);
    if (!isWithin) assert.fail(`bar ${at} opens or closes outside of its low and high`);
  }
});

test("the bits of seed 42 are frozen", () => {
  const hash = createHash("sha256");
  for (const column of barColumns) hash.update(new Uint8Array(bars[column].buffer));
  assert.equal(hash.digest("hex"), "c360e02b5fc56aa3f2570eb50030ddb5019303efae0fa13c23e79173ce5cc723");
});

test("a longer series starts with the shorter one, and another seed gives other bars", () => {
  const fewer = generateBars({ bars: 20_000, seed: 42 });
  for (const column of barColumns) sameBytes(fewer[column], bars[column].subarray(0, 20_000), column);
  const others = generateBars({ bars: 20_000, seed: 43 });
  assert.notDeepEqual([...others.close.subarray(0, 5)], [...fewer.close.subarray(0, 5)]);
});

test("there is a gap each night and each weekend", () => {
  const { gaps, firstTime } = checkBars(bars);
  assert.equal(new Date(firstTime).toISOString(), "2020-01-06T00:00:00.000Z");
  assert.equal(gaps.count, Math.ceil(200_000 / (23 * 60)) - 1);
  assert.equal(gaps.longestMinutes, 2 * 24 * 60 + 61);
  // 1970 began on a Thursday, day 4.
  const days = new Set(bars.time.map((time) => (Math.floor(time / 86_400_000) + 4) % 7));
  assert.deepEqual([...days].sort(), [1, 2, 3, 4, 5]);
});

test("the price of a long series stays near the first price", () => {
  const { lowestPrice, highestPrice } = checkBars(
    generateBars({ bars: effort({ quick: 300_000, thorough: 1_000_000 }), seed: 5 }),
  );
  assert.ok(lowestPrice > 70 && highestPrice < 140, `${lowestPrice} to ${highestPrice}`);
});

test("each regime is up, down and quiet about equally often, and lasts as long as it should", () => {
  for (const [regime, kind, tolerance] of [
    [market.burst, burstKind, 0.05],
    [market.trend, trendKind, 0.2],
  ] as const) {
    let switches = 0;
    for (let at = 1; at < regime.length; at++) if (regime[at] !== regime[at - 1]) switches++;
    const minutes = regime.length / switches;
    assert.ok(Math.abs(minutes / kind.meanMinutes - 1) < tolerance, `${minutes} minutes`);
    for (const state of [-1, 0, 1]) {
      const share = regime.filter((at) => at === state).length / regime.length;
      assert.ok(Math.abs(share - 1 / 3) < 0.1, `${state}: ${share}`);
    }
  }
});

test("volatility clusters: it is correlated after an hour, and not after days", () => {
  const squares = market.volatility.map((noise) => noise * noise);
  const near = correlationAt(squares, 60);
  const far = correlationAt(squares, 5000);
  assert.ok(near > 0.5 && Math.abs(far) < 0.2, `${near} after an hour, ${far} after days`);
});

test("more is traded while there is a trend", () => {
  const mean = (isTrending: boolean): number => {
    const volumes = bars.volume.filter((_, at) => (market.trend[at] !== 0) === isTrending);
    return volumes.reduce((sum, volume) => sum + volume, 0) / volumes.length;
  };
  assert.ok(mean(true) > 1.5 * mean(false));
});

test("an invalid number of bars is rejected, and so is a wrong seed", () => {
  for (const bars of [0, -1, 1.5, Number.NaN]) {
    rejects("BAD_ARGUMENT", () => generateBars({ bars, seed: 1 }), /number of bars is/);
  }
  rejects("BAD_ARGUMENT", () => generateBars({ bars: 1, seed: -1 }), /seed is -1/);
});

function correlationAt(values: Float64Array, lag: number): number {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  let [together, alone] = [0, 0];
  for (let at = 0; at < values.length; at++) alone += (values[at]! - mean) ** 2;
  for (let at = lag; at < values.length; at++) together += (values[at]! - mean) * (values[at - lag]! - mean);
  return together / alone;
}

test("more bars than there is time and memory for are rejected with the limit", () => {
  for (const bars of [0, 1.5, 100_000_001, 100_000_000_000])
    rejects(
      "BAD_ARGUMENT",
      () => generateBars({ bars, seed: 1 }),
      /It must be a whole number from 1 to 100,000,000/,
    );
});
