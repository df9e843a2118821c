/** Normalisation: correct statistics, from training rows only, and the same bits after a checkpoint. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { drawsFrom } from "../../../test/support/random-bars.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes, sameNamedBytes } from "../../../test/support/same-bytes.js";
import { applyNormaliser, fitNormaliser, normaliserFrom, normaliserRecord } from "./normaliser.js";
import { sampleWidth } from "./scales.js";

const rows = 40;
const train = { start: 0, end: 30 };

/** Features whose means and spreads differ. [rows, 12 · 193] */
function randomRows(seed = 1): Float32Array {
  const draw = drawsFrom(seed);
  return new Float32Array(rows * sampleWidth).map((_, index) => {
    const feature = index % sampleWidth;
    return feature - 1000 + (1 + (feature % 7)) * (draw() - 0.5);
  });
}

function columnOf(x: Float32Array, feature: number, { start, end } = train): number[] {
  return Array.from({ length: end - start }, (_, row) => x[(start + row) * sampleWidth + feature]!);
}

test("mean and population deviation of four values, computed by hand", () => {
  const x = new Float32Array(4 * sampleWidth);
  for (const [row, value] of [2, 4, 4, 6].entries()) x[row * sampleWidth + 5] = value;
  const { mean, deviation } = fitNormaliser(x, { start: 0, end: 4 });
  assert.equal(mean[5], 4);
  assert.equal(deviation[5], Math.fround(Math.SQRT2));
  assert.deepEqual([mean[6], deviation[6]], [0, Math.fround(1e-8)], "a feature that never moves");
});

test("training rows come out with mean 0 and deviation 1 in every feature", () => {
  const x = randomRows();
  const out = applyNormaliser(fitNormaliser(x, train), x);
  for (let feature = 0; feature < sampleWidth; feature++) {
    const column = columnOf(out, feature);
    const mean = column.reduce((sum, value) => sum + value, 0) / column.length;
    const variance = column.reduce((sum, value) => sum + (value - mean) ** 2, 0) / column.length;
    // A mean of 1,000 in float32 is off by up to 3e-5.
    assert.ok(
      Math.abs(mean) < 1e-3 && Math.abs(variance - 1) < 1e-3,
      `feature ${feature}: ${mean}, ${variance}`,
    );
  }
});

test("a small deviation around a large mean is exact, unlike in one pass over squares in float32", () => {
  const x = new Float32Array(4 * sampleWidth).fill(1e6);
  for (let row = 0; row < 4; row++) x[row * sampleWidth] = 1e6 + (row % 2);
  const { deviation } = fitNormaliser(x, { start: 0, end: 4 });
  assert.equal(deviation[0], 0.5);
});

test("only training rows count: another test row changes nothing, another training row does", () => {
  const x = randomRows();
  const fitted = normaliserRecord(fitNormaliser(x, train));
  const otherTest = x.slice().fill(1e9, train.end * sampleWidth);
  sameNamedBytes(normaliserRecord(fitNormaliser(otherTest, train)), fitted, "with other test rows");
  const otherTrain = x.slice();
  otherTrain[(train.end - 1) * sampleWidth] = 1e9;
  assert.notEqual(fitNormaliser(otherTrain, train).mean[0], fitted.mean[0]);
});

test("a fit of later rows ignores the earlier ones", () => {
  const x = randomRows();
  const late = { start: 10, end: rows };
  const alone = fitNormaliser(x.slice(10 * sampleWidth), { start: 0, end: rows - 10 });
  sameNamedBytes(normaliserRecord(fitNormaliser(x, late)), normaliserRecord(alone), "the late rows");
});

test("values beyond 5 deviations are clipped", () => {
  const x = randomRows();
  const normaliser = fitNormaliser(x, train);
  x.fill(1e9, 35 * sampleWidth, 36 * sampleWidth).fill(-1e9, 36 * sampleWidth, 37 * sampleWidth);
  const out = applyNormaliser(normaliser, x);
  assert.ok(out.every((value) => Math.abs(value) <= 5));
  assert.deepEqual([out[35 * sampleWidth], out[36 * sampleWidth]], [5, -5]);
});

test("with a target the source stays unchanged; in place the bits equal the target's", () => {
  const x = randomRows();
  const before = x.slice();
  const normaliser = fitNormaliser(x, train);
  const target = new Float32Array(x.length);
  assert.equal(applyNormaliser(normaliser, x, target), target);
  sameBytes(x, before, "the source");
  assert.equal(applyNormaliser(normaliser, x), x);
  sameBytes(x, target, "in place");
});

test("a normaliser from a checkpoint's record gives the same bits, and shares no array with it", () => {
  const x = randomRows();
  const normaliser = fitNormaliser(x, train);
  const record = normaliserRecord(normaliser);
  const stored = structuredClone(record);
  const loaded = normaliserFrom(stored);
  for (const array of [record.mean, stored.mean, record.deviation, stored.deviation]) array.fill(7);
  const [a, b] = [normaliser, loaded].map((candidate) =>
    applyNormaliser(candidate, x, new Float32Array(x.length)),
  );
  sameBytes(b!, a!, "the loaded one's output");
});

test("an invalid normaliser record is rejected", () => {
  const good = normaliserRecord(fitNormaliser(randomRows(), train));
  rejects("BAD_STATE", () => normaliserFrom({ mean: good.mean }), /deviation has no numbers/);
  rejects("BAD_STATE", () => normaliserFrom({ ...good, mean: good.mean.slice(1) }), /mean has 2315 numbers/);
  const holed = good.deviation.slice();
  holed[9] = 0;
  rejects("NOT_FINITE", () => normaliserFrom({ ...good, deviation: holed }), /deviation of feature 9 is 0/);
});

test("a NaN among the training rows is rejected with its feature", () => {
  const x = randomRows();
  x[3 * sampleWidth + 17] = Number.NaN;
  rejects("NOT_FINITE", () => fitNormaliser(x, train), /mean of feature 17 is NaN/);
});

test("missing rows, incomplete rows and a target of another length are rejected", () => {
  const x = randomRows();
  const normaliser = fitNormaliser(x, train);
  for (const [start, end] of [
    [0, 0],
    [3, 2],
    [-1, 2],
    [0, rows + 1],
    [0, 1.5],
  ] as const) {
    rejects("BAD_ARGUMENT", () => fitNormaliser(x, { start, end }), /are not a valid range/);
  }
  rejects("BAD_ARGUMENT", () => fitNormaliser(x.subarray(1), train), /not a whole number of samples/);
  rejects("BAD_ARGUMENT", () => applyNormaliser(normaliser, x.subarray(1)), /not a whole number of samples/);
  rejects("BAD_ARGUMENT", () => applyNormaliser(normaliser, x, x.subarray(1)), /^The target has/);
});
