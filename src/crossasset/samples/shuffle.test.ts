/** Shuffled labels: the same labels, in an order that depends on the seed. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { randomBars } from "../../../test/support/random-bars.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { makeSamples } from "./features.js";
import { scales } from "./scales.js";
import { shuffleLabels } from "./shuffle.js";

const samples = makeSamples(randomBars(8800), { stride: 10 });

function rowsOf(labels: Int32Array): string[] {
  const width = scales.length;
  return Array.from({ length: labels.length / width }, (_, row) =>
    labels.subarray(row * width, (row + 1) * width).join(),
  );
}

test("labels move between samples row by row, and none is lost or added", () => {
  const before = samples.labels.slice();
  const shuffled = shuffleLabels(samples, 42);
  assert.deepEqual(rowsOf(shuffled.labels).sort(), rowsOf(before).sort());
  assert.notDeepEqual(rowsOf(shuffled.labels), rowsOf(before));
  sameBytes(samples.labels, before, "the labels given");
  assert.equal(shuffled.x, samples.x);
});

test("labels are no longer correlated in time", () => {
  const repeats = (labels: Int32Array) => {
    const longest = labels.filter((_, index) => index % scales.length === scales.length - 1);
    return longest.filter((label, index) => index > 0 && label === longest[index - 1]).length / samples.count;
  };
  assert.ok(repeats(samples.labels) > 0.75, `before: ${repeats(samples.labels)}`);
  const after = repeats(shuffleLabels(samples, 42).labels);
  assert.ok(after < 0.65, `after: ${after}`);
});

test("the same seed gives the same labels, another seed others", () => {
  const [a, b, c] = [42, 42, 43].map((seed) => shuffleLabels(samples, seed).labels);
  sameBytes(b!, a!, "the same seed");
  assert.notDeepEqual(rowsOf(c!), rowsOf(a!));
});
