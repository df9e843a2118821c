/** Buckets of rows: every row is in one bucket, outliers stay visible, and rates tolerate a coarse clock. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { makeFolder } from "../../../test/support/folders.js";
import { StepLog } from "../../train/index.js";
import { bucketSteps } from "./step-buckets.js";

interface RandomRow {
  readonly loss: number;
  readonly samples: number;
  readonly waitMs: number;
}

function writeRows(rows: readonly RandomRow[], path = join(makeFolder(), "steps.bin")): string {
  const log = new StepLog(path);
  let time = 1_700_000_000_000;
  for (const [index, { loss, samples, waitMs }] of rows.entries()) {
    time += waitMs;
    log.append({ step: index + 1, time, loss, lr: 1 / (index + 1), fold: 0, epoch: 0, samples, hostMs: 0.5 });
  }
  log.close();
  return path;
}

const drawnRow = fc.record({
  loss: fc.oneof(fc.double({ min: -10, max: 10, noNaN: true }), fc.constantFrom(Number.NaN, Infinity)),
  samples: fc.nat(512),
  waitMs: fc.oneof(fc.constant(0), fc.nat(200)),
});

test("every row of the range is in one bucket, with its extremes, and the number of buckets is within the limit", () => {
  const folder = makeFolder();
  let files = 0;
  fc.assert(
    fc.property(
      fc.array(drawnRow, { minLength: 1, maxLength: 60 }),
      fc.nat(59),
      fc.integer({ min: 1, max: 70 }),
      (rows, from, maxBuckets) => {
        fc.pre(from < rows.length);
        const path = writeRows(rows, join(folder, `${files++}.bin`));
        const buckets = bucketSteps(path, { from, to: rows.length, maxBuckets });
        assert.ok(buckets.length <= maxBuckets);
        let next = from + 1;
        for (const { rows: count, firstStep, lastStep, loss, notFinite, samples, hostMs, lr } of buckets) {
          assert.deepEqual([firstStep, lastStep], [next, next + count - 1]);
          const bucketRows = rows.slice(firstStep - 1, lastStep);
          const losses = bucketRows.map((row) => row.loss).filter(Number.isFinite);
          assert.equal(notFinite, count - losses.length);
          assert.equal(loss?.min, losses.length > 0 ? Math.min(...losses) : undefined);
          assert.equal(loss?.max, losses.length > 0 ? Math.max(...losses) : undefined);
          assert.equal(
            samples,
            bucketRows.reduce((sum, row) => sum + row.samples, 0),
          );
          assert.equal(hostMs, 0.5 * count);
          assert.equal(lr, 1 / lastStep);
          next = lastStep + 1;
        }
        assert.equal(next, rows.length + 1);
      },
    ),
    { numRuns: effort({ quick: 40, thorough: 200 }) },
  );
});

test("the rate is samples per time, even if many steps have the same clock time", () => {
  // 1,000 steps of 8 samples per 100 ms, recorded as ten steps per clock tick of 1 ms.
  const rows = Array.from({ length: 3000 }, (_, index) => ({
    ...{ loss: 1, samples: 8, waitMs: index % 10 === 0 ? 1 : 0 },
  }));
  const path = writeRows(rows);
  const late = bucketSteps(path, { from: 0, to: 3000, maxBuckets: 3000 }).slice(1100);
  for (const { samplesPerSecond } of late) {
    assert.ok(
      samplesPerSecond !== undefined && Math.abs(samplesPerSecond - 80_000) < 1600,
      `${samplesPerSecond}`,
    );
  }
  const together = bucketSteps(path, { from: 0, to: 3000, maxBuckets: 10 });
  assert.equal(together.length, 10);
  assert.equal(together[0]?.samplesPerSecond, undefined);
  for (const { samplesPerSecond } of together.slice(1)) assert.equal(samplesPerSecond, 80_000);
});

test("a range that begins in the middle measures its first rate from the row before it", () => {
  const path = writeRows(Array.from({ length: 10 }, () => ({ loss: 1, samples: 5, waitMs: 200 })));
  const [first] = bucketSteps(path, { from: 5, to: 10, maxBuckets: 5 });
  assert.equal(first?.samplesPerSecond, 25);
});

test("more rows than one chunk give the same buckets", () => {
  const count = 70_000;
  const path = writeRows(
    Array.from({ length: count }, (_, index) => ({ loss: index, samples: 1, waitMs: 1 })),
  );
  const buckets = bucketSteps(path, { from: 0, to: count, maxBuckets: 7 });
  assert.deepEqual(
    buckets.map(({ rows, loss }) => [rows, loss?.min, loss?.max]),
    Array.from({ length: 7 }, (_, index) => [10_000, 10_000 * index, 10_000 * index + 9999]),
  );
  assert.equal(bucketSteps(path, { from: 0, to: count, maxBuckets: count }).length, count);
});
