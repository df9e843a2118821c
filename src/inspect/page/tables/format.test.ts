/** The format of numbers, sizes and times, also at the limits of their units. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import {
  formatBandwidth,
  formatBytes,
  formatCount,
  formatDuration,
  formatName,
  formatNumber,
  formatPercent,
  formatTime,
} from "./format.js";

test("an unknown value is a dash, whatever its unit", () => {
  for (const format of [
    formatCount,
    formatNumber,
    formatPercent,
    formatBytes,
    formatDuration,
    formatTime,
  ] as const) {
    assert.equal(format(null), "–");
    assert.equal(format(undefined), "–");
    assert.equal(format(Number.NaN), "–");
  }
});

test("counts have thousands separators", () => {
  assert.equal(formatCount(1_234_567), "1,234,567");
});

test("numbers keep their significant digits", () => {
  assert.equal(formatNumber(1.861_447), "1.861");
  assert.equal(formatNumber(0.001), "0.001");
  assert.equal(formatNumber(0.000_012_5), "1.25e-5");
  assert.equal(formatNumber(0), "0");
  assert.equal(formatNumber(123_456.7), "123,457");
  assert.equal(formatNumber(1600), "1,600");
  assert.equal(formatNumber(2e12), "2e+12");
});

test("sizes take the largest unit that keeps them at 1 or more", () => {
  assert.equal(formatBytes(1023), "1023 B");
  assert.equal(formatBytes(1024), "1 KiB");
  assert.equal(formatBytes(1.5 * 1024 ** 3), "1.5 GiB");
});

test("durations have at most two units, and never 60 seconds or 60 minutes", () => {
  assert.equal(formatDuration(0.000_007), "7 µs");
  assert.equal(formatDuration(0.0042), "4.2 ms");
  assert.equal(formatDuration(12.345), "12.3 s");
  assert.equal(formatDuration(59.99), "1 min 00 s");
  assert.equal(formatDuration(125), "2 min 05 s");
  assert.equal(formatDuration(3 * 3600 + 240), "3 h 04 min");
  assert.equal(formatDuration(93_600), "1 d 2 h");
  fc.assert(
    fc.property(fc.double({ min: 0, max: 1e7, noNaN: true }), (seconds) => {
      assert.doesNotMatch(formatDuration(seconds), /\b(60 s|60 min|1000 ms|1000 µs|24 h)\b/);
    }),
  );
});

test("a bandwidth is bytes over time, and unknown without a time", () => {
  assert.equal(formatBandwidth(3_000_000, 1), "3,000 GB/s");
  assert.equal(formatBandwidth(2_500_000, 1000), "2.5 GB/s");
  assert.equal(formatBandwidth(1, undefined), "–");
  assert.equal(formatBandwidth(1, 0), "–");
});

test("shares, names and times are formatted as text", () => {
  assert.equal(formatPercent(0.505_24), "50.5 %");
  assert.equal(formatName("qkNorm"), "qk norm");
  assert.equal(formatName("wf_mean"), "wf mean");
  assert.match(formatTime("2026-11-15T18:31:36.031Z"), /^2026-11-1[456] \d\d:31:36$/);
});
