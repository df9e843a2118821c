import assert from "node:assert/strict";
import { test } from "node:test";
import { isThorough } from "./effort.js";
import { sampleOfDay } from "./sample-of-day.js";

test("the samples of successive days have every case: once each, or each day in the long tests", () => {
  const all = Array.from({ length: 11 }, (_, index) => `case ${index}`);
  const samples = [20_001, 20_002, 20_003].map((day) => sampleOfDay(all, 3, day).cases);
  const tried = samples.flat().sort();
  assert.deepEqual(tried, (isThorough ? [...all, ...all, ...all] : [...all]).sort());
  for (const sample of samples) assert.ok(sample.length >= 3, `${sample.length} cases`);
});
