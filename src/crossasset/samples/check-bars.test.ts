/** The summary of bars. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import type { Bars } from "../bars/bars.js";
import { generateBars } from "../bars/generate.js";
import { checkBars } from "./check-bars.js";

const minute = 60_000;

function barsAt(...minutes: number[]): Bars {
  const ones = new Float64Array(minutes.length).fill(1);
  const time = Float64Array.from(minutes, (at) => at * minute);
  return { time, open: ones, high: ones, low: ones, close: ones, volume: ones };
}

test("a summary has the count, the times, the gaps, the prices and the bars without volume", () => {
  const bars: Bars = {
    ...barsAt(0, 1, 4, 5, 15, 25),
    high: Float64Array.of(2, 3, 9, 4, 5, 6),
    low: Float64Array.of(2, 1.5, 2, 3, 4, 5),
    volume: Float64Array.of(1, 0, 2, 0, 0, 3),
  };
  assert.deepEqual(checkBars(bars), {
    bars: 6,
    firstTime: 0,
    lastTime: 25 * minute,
    gaps: { count: 3, longestMinutes: 10, longestAfter: 5 * minute },
    lowestPrice: 1.5,
    highestPrice: 9,
    zeroVolumes: 3,
    samples: { count: 0, stride: 60 },
  });
});

test("bars without a gap have none, and bars less than a minute apart have none either", () => {
  const none = { count: 0, longestMinutes: 0, longestAfter: undefined };
  assert.deepEqual(checkBars(barsAt(7)).gaps, none);
  assert.deepEqual(checkBars(barsAt(1, 1.5, 2, 3)).gaps, none);
});

test("a sample counts if it has 7,689 bars of history and 233 later bars, every stride bars", () => {
  const samples = (bars: number, stride?: number): number =>
    checkBars(generateBars({ bars, seed: 1 }), stride).samples.count;
  assert.equal(samples(7921), 0);
  assert.equal(samples(7922), 1);
  assert.equal(samples(7922 + 59), 1);
  assert.equal(samples(7922 + 60), 2);
  assert.equal(samples(7922 + 60, 10), 7);
});

test("an empty series is rejected", () => {
  rejects("BAD_ARGUMENT", () => checkBars(barsAt()), /0 bars to check/);
});

test("a stride that is not a whole number, 1 or more, is rejected", () => {
  for (const stride of [0, -60, 1.5, Number.NaN]) {
    rejects("BAD_ARGUMENT", () => checkBars(barsAt(1), stride), /The stride is /);
  }
});
