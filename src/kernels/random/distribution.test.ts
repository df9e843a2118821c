/** Values of distributions on the host: frozen bits, bounds and moments. The seeds are fixed, so that these tests pass always or never. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { type Distribution, drawValues, standardNormal, standardUniform } from "./distribution.js";
import { uniform } from "./distributions.js";
import { drawHostValues } from "./host-values.js";
import { normalCdf } from "./inverse-normal.js";
import { normal } from "./normal.js";
import { drawWords } from "./random-stream.js";

const stream = { seed: 42, id: 0 };

function moments(values: Float32Array): { readonly mean: number; readonly deviation: number } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return {
    mean,
    deviation: Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length),
  };
}

/** The mean and standard deviation of a standard normal between two bounds. */
function truncatedMoments(low: number, high: number): { readonly mean: number; readonly deviation: number } {
  const density = (x: number): number => Math.exp(-x * x * 0.5) / Math.sqrt(2 * Math.PI);
  const mass = normalCdf(high) - normalCdf(low);
  const mean = (density(low) - density(high)) / mass;
  return { mean, deviation: Math.sqrt(1 + (low * density(low) - high * density(high)) / mass - mean ** 2) };
}

test("the first values of seed 42 are frozen, bit for bit", () => {
  const frozen: readonly [Distribution, readonly number[]][] = [
    [{ kind: "uniform", low: -1, high: 1 }, [0xbef47d20, 0xbc9028c0, 0xbf20318e]],
    [{ kind: "normal", mean: 1, std: 0.5 }, [0x3e3a611c, 0x3f85cb56, 0x3e53ffd4]],
    [{ kind: "truncNormal", mean: 0, std: 1, low: -2, high: 2 }, [0xbf1b40e3, 0xbcac77b3, 0xbf56373d]],
  ];
  for (const [distribution, bits] of frozen)
    assert.deepEqual(
      [...new Uint32Array(drawValues(distribution, stream, 3).buffer)],
      bits,
      distribution.kind,
    );
});

test("standard distributions are the plain streams, zeros included", () => {
  assert.deepEqual(drawValues(standardNormal, stream, 999), normal(stream, 999));
  assert.deepEqual(
    drawValues(standardUniform, stream, 999),
    Float32Array.from(drawWords(stream, 999), uniform),
  );
});

test("the kernels give the same bits on the host, also after the first call's values", () => {
  for (const distribution of [
    standardUniform,
    standardNormal,
    { kind: "truncNormal", mean: 0, std: 1, low: -3, high: 1 },
  ] as const) {
    for (const count of [0, 1, 5, 65_539])
      sameBytes(
        drawHostValues(distribution, stream, count),
        drawValues(distribution, stream, count),
        `${count}`,
      );
    const other = drawHostValues(distribution, { ...stream, id: 1 }, 5);
    assert.notDeepEqual(other, drawValues(distribution, stream, 5));
  }
});

test("truncated values stay within their bounds and have the moments of their distribution", () => {
  for (const [low, high] of [
    [-2, 2],
    [-0.5, 3],
    [1.5, 2.5],
    [5, 8],
    [-9, -5],
  ] as const) {
    const [mean, std] = [0.25, 0.1];
    const bounds = { low: mean + std * low, high: mean + std * high };
    const values = drawValues({ kind: "truncNormal", mean, std, ...bounds }, stream, 20_000);
    assert.ok(values.every((value) => value >= Math.fround(bounds.low) && value <= Math.fround(bounds.high)));
    const [actual, expected] = [moments(values), truncatedMoments(low, high)];
    const error = 0.03 * expected.deviation;
    assert.ok(Math.abs((actual.mean - mean) / std - expected.mean) < error, `mean from ${low} to ${high}`);
    assert.ok(
      Math.abs(actual.deviation / std - expected.deviation) < error,
      `deviation from ${low} to ${high}`,
    );
  }
});

test("exponential values have the moments of their rate, and none is 0", () => {
  const values = drawValues({ kind: "exponential", rate: 4 }, stream, 20_000);
  const { mean, deviation } = moments(values);
  assert.ok(Math.abs(mean - 0.25) < 0.01 && Math.abs(deviation - 0.25) < 0.01, `${mean} ± ${deviation}`);
  assert.ok(values.every((value) => value > 0));
});

test("a distribution without bounds is the normal one", () => {
  const [low, high] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  const { mean, deviation } = moments(
    drawValues({ kind: "truncNormal", mean: 3, std: 2, low, high }, stream, 20_000),
  );
  assert.ok(Math.abs(mean - 3) < 0.06 && Math.abs(deviation - 2) < 0.04, `${mean} ± ${deviation}`);
});
