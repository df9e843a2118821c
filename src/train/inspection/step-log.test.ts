/** The step log: what was appended is read back to the bit, by ranges too; kills and resumes leave whole rows. */

import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { stepColumns } from "./records.js";
import { countSteps, readSteps, StepLog, type StepRow } from "./step-log.js";

const newPath = (): string => join(mkdtempSync(join(tmpdir(), "holdfast-steps-")), "steps.bin");
const rowOf = (step: number): StepRow => ({
  ...{ step, time: 1_700_000_000_000 + step / 3, loss: step === 3 ? Number.NaN : 1 / step, lr: 1e-3 / step },
  ...{ fold: step % 2, epoch: Math.floor(step / 10), samples: 256, hostMs: 0.02 * step },
});

function write(path: string, from: number, to: number): void {
  const log = new StepLog(path);
  for (let step = from; step <= to; step++) log.append(rowOf(step));
  log.close();
}

function proveRows(path: string, from: number, to: number): void {
  const series = readSteps(path);
  assert.equal(series.step.length, to - from + 1);
  for (const column of stepColumns) {
    for (let step = from; step <= to; step++) {
      assert.ok(Object.is(series[column][step - from], rowOf(step)[column]), `${column} of step ${step}`);
    }
  }
}

test("what was appended is read back to the bit, and a second process goes on behind it", () => {
  const path = newPath();
  write(path, 1, 700);
  write(path, 701, 1300);
  proveRows(path, 1, 1300);
  assert.equal(countSteps(path), 1300);
});

test("a range is read by itself, and one beyond the end is empty", () => {
  const path = newPath();
  write(path, 1, 100);
  assert.deepEqual([...readSteps(path, { from: 10, to: 13 }).step], [11, 12, 13]);
  assert.equal(readSteps(path, { from: 100 }).step.length, 0);
});

test("a row that was cut off in the middle is not read, and a resumed log does not keep it", () => {
  const path = newPath();
  write(path, 1, 5);
  truncateSync(path, 512 + 4 * 64 + 20);
  assert.deepEqual([...readSteps(path).step], [1, 2, 3, 4]);
  write(path, 5, 6);
  proveRows(path, 1, 6);
});

test("a header that was cut off is written anew", () => {
  const path = newPath();
  writeFileSync(path, '{"format"');
  write(path, 1, 3);
  proveRows(path, 1, 3);
});

test("rows behind a step are dropped, and written again they are as they were", () => {
  const path = newPath();
  write(path, 1, 1000);
  const log = new StepLog(path);
  log.dropAfter(640);
  assert.equal(countSteps(path), 640);
  for (let step = 641; step <= 700; step++) log.append(rowOf(step));
  log.close();
  proveRows(path, 1, 700);
});

test("another file is refused with its name, and is left as it is", () => {
  const path = newPath();
  appendFileSync(path, "x".repeat(600));
  assert.throws(() => new StepLog(path), /steps\.bin is no step log/);
  assert.throws(() => readSteps(path), /steps\.bin is no step log/);
});
