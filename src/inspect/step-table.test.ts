/** The steps as points: outliers stay visible, few rows are exact, and a growing or truncated log is followed. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import { makeFolder } from "../../test/support/folders.js";
import { type SampleRunOptions, writeSampleRun } from "../../test/support/sample-run.js";
import { StepTable } from "./step-table.js";

function tableOf(options: SampleRunOptions) {
  const run = writeSampleRun(makeFolder(), "a", options);
  const table = new StepTable(run.path);
  table.refresh();
  return { run, table };
}

const loss = fc.oneof(
  { weight: 5, arbitrary: fc.double({ min: -1e6, max: 1e6, noNaN: true }) },
  fc.constantFrom(Number.NaN, Infinity, -Infinity),
);

test("with any number of points, the min. and max. loss of a range are included, and every row is counted", () => {
  fc.assert(
    fc.property(
      fc.array(loss, { minLength: 1, maxLength: 300 }),
      fc.nat(300),
      fc.nat(300),
      fc.integer({ min: 1, max: 60 }),
      (losses, one, other, points) => {
        const { table } = tableOf({ steps: losses.length, lossAt: (step) => losses[step - 1] });
        const [from, to] = [Math.min(one, other), Math.max(one, other)];
        const actual = table.points({ from, to, points });
        const inside = losses.slice(from, to);
        const finite = inside.filter(Number.isFinite);
        const { lossMin, lossMax, notFinite, step } = actual.columns;
        assert.equal(step.length, Math.min(points, inside.length));
        const finiteOf = (column: Float64Array) => [...column].filter((value) => !Number.isNaN(value));
        assert.equal(Math.min(...finiteOf(lossMin)), Math.min(...finite));
        assert.equal(Math.max(...finiteOf(lossMax)), Math.max(...finite));
        const lost = notFinite.reduce((sum, count) => sum + count, 0);
        assert.equal(lost, inside.length - finite.length);
        if (inside.length > 0) assert.equal(step.at(-1), Math.min(to, losses.length));
      },
    ),
    { numRuns: effort({ quick: 30, thorough: 150 }) },
  );
});

test("with as many points as rows, each point is its row", () => {
  const { run, table } = tableOf({ steps: 100 });
  const { columns, rows, from, to } = table.points({ from: 10, to: 60, points: 50 });
  assert.deepEqual([rows, from, to], [100, 10, 60]);
  for (let point = 0; point < 50; point++) {
    const row = run.rowOf(11 + point);
    for (const name of ["step", "time", "loss", "lr", "fold", "epoch", "hostMs"] as const)
      assert.equal(columns[name][point], row[name], `${name} of point ${point}`);
    assert.equal(columns.lossMin[point], row.loss);
    assert.equal(columns.lossMax[point], row.loss);
  }
});

test("a point's loss is the mean of its rows, and its host time too", () => {
  const { table } = tableOf({ steps: 8, lossAt: (step) => step });
  assert.deepEqual([...table.points({ points: 2 }).columns.loss], [2.5, 6.5]);
});

test("samples per second are measured by the clock, for any number of rows per point", () => {
  for (const [stepMs, points] of [
    [20, 1000],
    [20, 7],
    [0.5, 1000],
    [0.5, 3],
    [400, 1000],
  ] as const) {
    const { table } = tableOf({ steps: 1000, stepMs, batch: 10 });
    const { samplesPerSecond } = table.points({ points }).columns;
    for (const [index, rate] of samplesPerSecond.entries()) {
      // The very first row has no earlier row to measure from.
      if (index === 0 && points === 1000) assert.ok(Number.isNaN(rate));
      else assert.ok(Math.abs(rate - 10_000 / stepMs) < 1e-6 * rate, `${rate} at point ${index}`);
    }
  }
});

test("the rate of a range does not depend on the start of the range", () => {
  const { table } = tableOf({ steps: 1000, stepMs: 0.5, batch: 10 });
  const whole = table.points({ points: 1000 }).columns.samplesPerSecond;
  const range = table.points({ from: 600, to: 700, points: 100 }).columns.samplesPerSecond;
  assert.deepEqual([...range], [...whole.subarray(600, 700)]);
});

test("new rows are read, and columns returned earlier stay unchanged", () => {
  const { run, table } = tableOf({ steps: 10 });
  const before = table.series();
  run.appendSteps(700);
  table.refresh();
  assert.deepEqual([before.step.length, table.rows], [10, 710]);
  assert.equal(table.series().step.at(-1), 710);
});

test("a log that a resume has cut is read again, even if it is longer by then", () => {
  const losses = { value: 1 };
  const { run, table } = tableOf({ steps: 100, lossAt: () => losses.value });
  const before = table.series();
  run.dropAfter(40);
  table.refresh();
  assert.equal(table.rows, 40);
  run.appendSteps(60);
  table.refresh();
  run.dropAfter(50);
  losses.value = 2;
  run.appendSteps(100);
  table.refresh();
  const { loss: finiteOf } = table.series();
  assert.deepEqual([finiteOf.length, finiteOf[49], finiteOf[50], finiteOf[149]], [150, 1, 2, 2]);
  assert.deepEqual([before.loss.length, before.loss[60]], [100, 1]);
});

test("a missing log has no rows, and an invalid file is rejected with its name", () => {
  const table = new StepTable(makeFolder());
  table.refresh();
  assert.equal(table.points({ points: 5 }).columns.step.length, 0);
  const folder = makeFolder();
  writeFileSync(join(folder, "steps.bin"), "no log at all");
  assert.throws(() => new StepTable(folder).refresh(), /steps\.bin is not a step log/);
});
