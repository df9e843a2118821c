/** Samples against a simple reference and numbers computed by hand; no sample looks ahead. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { barsOfCloses, copyBars, drawsFrom, randomBars } from "../../../test/support/random-bars.js";
import { rejects } from "../../../test/support/rejects.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { type ReferenceScale, referenceScale } from "../../../test/support/sample-reference.js";
import { type Bars, barColumns } from "../bars/bars.js";
import { makeSamples, type Samples } from "./features.js";
import { classes, featureCount, historyBars, longestHorizon, sampleWidth, scales } from "./scales.js";

const minBars = historyBars + longestHorizon;

/** Float32 rounds to 6e-8 of a number; where σ is at its floor, float64's own rounding shows as about 1e-6. */
const tolerance = 1e-5;

function rowOf({ x }: Samples, sample: number, scale = 0, count = featureCount): Float32Array {
  const start = sample * sampleWidth + scale * featureCount;
  return x.subarray(start, start + count);
}

function assertMatches(samples: Samples, sample: number, scale: number, expected: ReferenceScale): void {
  const actual = rowOf(samples, sample, scale);
  for (const [feature, value] of expected.features.entries()) {
    const isNear = Math.abs(actual[feature]! - value) <= tolerance * Math.max(1, Math.abs(value));
    assert.ok(
      isNear,
      `sample ${sample}, scale ${scale}, feature ${feature}: ${actual[feature]}, not ${value}`,
    );
  }
  assert.equal(samples.labels[sample * scales.length + scale], classes[expected.label]);
}

/** Compares every sample with the reference, and returns which cases the bars contain. */
function compareAll(bars: Bars, stride: number): Record<"still" | "flat" | "untraded", number> {
  const samples = makeSamples(bars, { stride });
  const cases = { still: 0, flat: 0, untraded: 0 };
  for (const [sample, bar] of samples.bar.entries()) {
    for (const [index, scale] of scales.entries()) {
      const expected = referenceScale(bars, bar, scale);
      assertMatches(samples, sample, index, expected);
      if (expected.sigma === 1e-8) cases.still++;
      for (let group = 0; group < 32; group++) {
        if (expected.features[group * 6 + 1] === 0) cases.flat++;
        if (expected.volumes[group] === 0) cases.untraded++;
      }
    }
  }
  return cases;
}

test("samples equal those of a plain reference on the same bars, with gaps, halts and untraded minutes", () => {
  const cases = compareAll(randomBars(minBars + 1600), 31);
  assert.ok(cases.still > 0, "no sample has a market without moves");
  assert.ok(cases.flat > 0, "no group was flat");
  assert.ok(cases.untraded > 0, "no group was untraded");
});

test("samples equal the reference for any seed, stride and number of bars", () => {
  const draws = [fc.integer({ min: 1, max: 1e9 }), fc.integer({ min: 1, max: 90 }), fc.nat(200)] as const;
  fc.assert(
    fc.property(...draws, (seed, stride, more) => {
      const bars = randomBars(minBars + more, { seed });
      const { count } = makeSamples(bars, { stride });
      assert.equal(count, Math.floor(more / stride) + 1);
      compareAll(bars, Math.max(stride, 50));
    }),
    { numRuns: effort({ quick: 5, thorough: 20 }) },
  );
});

test("the reference detects a changed bar: a comparison with other bars fails", () => {
  const bars = randomBars(minBars);
  const changed = copyBars(bars);
  changed.high[historyBars - 30]! *= 1.01;
  const samples = makeSamples(changed);
  const expected = referenceScale(bars, historyBars - 1, 1);
  assert.throws(() => assertMatches(samples, 0, 0, expected), /sample 0, scale 0, feature 13: /);
});

test("the min. number of bars gives one sample, at the first bar with enough history", () => {
  const bars = randomBars(minBars);
  const { count, bar, time, x, labels } = makeSamples(bars);
  assert.deepEqual([count, bar[0], time[0]], [1, 7688, bars.time[7688]]);
  assert.deepEqual([x.length, labels.length], [2316, 12]);
});

test("samples follow every 60 bars by default, and the last one has just enough future bars", () => {
  const { bar, time } = makeSamples(randomBars(minBars + 120, { isRough: false }));
  assert.deepEqual([...bar], [7688, 7748, 7808]);
  assert.deepEqual(
    [...time],
    [7689, 7749, 7809].map((minutes) => minutes * 60_000),
  );
  assert.equal(makeSamples(randomBars(minBars + 119)).count, 2);
});

/** Alternating one-minute returns of +0.01 and −0.01; the sample is right after a fall, and σ is 0.01. */
function seesaw(future: number): Bars {
  const closes = Array.from({ length: minBars }, (_, bar) => (bar % 2 === 0 ? 100 : 100 * Math.exp(0.01)));
  closes[historyBars] = 100 * Math.exp(future);
  return barsOfCloses(closes);
}

test("the label is long above 0.43 σ, short below −0.43 σ, and flat between", () => {
  const labelOf = (future: number) => makeSamples(seesaw(future)).labels[0];
  assert.equal(labelOf(0.0044), classes.long);
  assert.equal(labelOf(0.0042), classes.flat);
  assert.equal(labelOf(0), classes.flat);
  assert.equal(labelOf(-0.0042), classes.flat);
  assert.equal(labelOf(-0.0044), classes.short);
});

test("the label of a scale comes from the close as many bars ahead as the scale has", () => {
  for (const [index, scale] of scales.entries()) {
    const closes: number[] = new Array(minBars).fill(100);
    closes[historyBars - 1 + scale] = 101;
    const { labels } = makeSamples(barsOfCloses(closes));
    const expected = scales.map((_, other) => (other === index ? classes.long : classes.flat));
    assert.deepEqual([...labels], expected, `the close ${scale} bars ahead`);
  }
});

test("features of alternating returns, computed by hand: returns of one σ, no move within a bar, ln σ at the end", () => {
  const samples = makeSamples(seesaw(0));
  // Bar 7,688 has 100: the newest return is a fall, and the return 32 bars earlier is a rise.
  for (const [feature, value] of [1, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0].entries()) {
    assert.ok(Math.abs(samples.x[feature]! - value) < 1e-6, `feature ${feature}: ${samples.x[feature]}`);
  }
  assert.ok(Math.abs(samples.x[192]! - Math.log(0.01)) < 1e-6);
  // On the scale of two bars the price never moves: σ is at its floor.
  assert.ok(Math.abs(rowOf(samples, 0, 1)[192]! - Math.log(1e-8)) < 1e-6);
});

test("the features of a market that never moves and never trades are finite", () => {
  const { x, labels } = makeSamples(barsOfCloses(new Array(minBars).fill(0.1), 0));
  assert.ok(x.every(Number.isFinite));
  assert.ok(labels.every((label) => label === classes.flat));
});

/** Indices of the samples whose features differ. */
function movedSamples(before: Samples, after: Samples): number[] {
  const numbers = Array.from({ length: before.count }, (_, sample) => sample);
  return numbers.filter((sample) => {
    const [a, b] = [before, after].map((samples) => rowOf(samples, sample, 0, sampleWidth));
    return a!.some((value, index) => value !== b![index]);
  });
}

function changeBars(bars: Bars, start: number, end: number): Bars {
  const changed = copyBars(bars);
  const draw = drawsFrom(99);
  for (let bar = start; bar < end; bar++) {
    const factor = 0.5 + draw();
    for (const column of barColumns) changed[column][bar]! *= factor;
  }
  return changed;
}

test("no sample looks ahead: later bars change no feature of it or of earlier samples", () => {
  const bars = randomBars(minBars + 400, { seed: 5 });
  const before = makeSamples(bars, { stride: 50 });
  for (const [sample, bar] of before.bar.entries()) {
    const after = makeSamples(changeBars(bars, bar + 1, bars.close.length), { stride: 50 });
    const later = Array.from({ length: before.count - sample - 1 }, (_, index) => sample + 1 + index);
    assert.deepEqual(movedSamples(before, after), later);
    assert.notDeepEqual(after.labels, before.labels, "the labels do look ahead");
  }
});

test("a look ahead would be detected: a change of a sample's own bar changes the sample", () => {
  const bars = randomBars(minBars + 400, { seed: 5 });
  const before = makeSamples(bars, { stride: 50 });
  const bar = before.bar[3]!;
  assert.deepEqual(
    movedSamples(before, makeSamples(changeBars(bars, bar, bar + 1), { stride: 50 })),
    [3, 4, 5, 6, 7, 8],
  );
});

test("a sample does not depend on bars before its history: a series that starts later gives the same bits", () => {
  const bars = randomBars(minBars + 500, { seed: 6 });
  const whole = makeSamples(bars, { stride: 50 });
  const later = makeSamples(copyBars(bars, 200), { stride: 50 });
  sameBytes(later.x, whole.x.subarray(4 * sampleWidth), "the features");
  sameBytes(later.labels, whole.labels.subarray(4 * scales.length), "the labels");
});

test("too few bars and an invalid stride are rejected", () => {
  rejects("BAD_ARGUMENT", () => makeSamples(randomBars(7921)), /^7921 bars are too few: a sample needs 7922/);
  for (const stride of [0, -1, 1.5, Number.NaN]) {
    rejects("BAD_ARGUMENT", () => makeSamples(randomBars(10), { stride }), /^The stride is/);
  }
});

test("samples without required labels go up to the last bar, with the same features and available labels", () => {
  const bars = randomBars(minBars + 100, { seed: 3 });
  const [labelled, all] = [
    makeSamples(bars, { stride: 20 }),
    makeSamples(bars, { stride: 20, labelled: false }),
  ];
  assert.equal(all.count, Math.floor((minBars + 100 - historyBars) / 20) + 1);
  assert.ok(all.count > labelled.count);
  sameBytes(all.x.subarray(0, labelled.x.length), labelled.x, "features");
  sameBytes(all.labels.subarray(0, labelled.labels.length), labelled.labels, "labels");
  for (const [index, label] of all.labels.entries()) {
    const [sample, scale] = [Math.floor(index / scales.length), index % scales.length];
    const isKnown = all.bar[sample]! + scales[scale]! < bars.close.length;
    assert.equal(label >= 0, isKnown, `sample ${sample}, scale ${scale}`);
  }
});
