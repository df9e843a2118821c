/** The step log: rows are read back bit for bit, ranges too; kills and resumes leave complete rows. */

import assert from "node:assert/strict";
import { appendFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { withFault } from "../../../test/support/failing-calls.js";
import { makeFolder } from "../../../test/support/folders.js";
import { stepColumns } from "../../records/index.js";
import { bufferSizes } from "../../units/index.js";
import { countSteps, readSteps, StepLog, type StepRow } from "./step-log.js";

const newPath = (): string => join(makeFolder(), "steps.bin");
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

test("appended rows are read back bit for bit, and a second process continues the log", () => {
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

test("an incomplete row is not read, and a resumed log removes it", () => {
  const path = newPath();
  write(path, 1, 5);
  truncateSync(path, 512 + 4 * 64 + 20);
  assert.deepEqual([...readSteps(path).step], [1, 2, 3, 4]);
  write(path, 5, 6);
  proveRows(path, 1, 6);
});

test("a partial or failed write leaves every row complete, exactly once", async () => {
  for (const how of ["short", "torn"]) {
    const path = newPath();
    const log = new StepLog(path);
    for (let step = 1; step <= 5; step++) log.append(rowOf(step));
    await withFault({ kind: "write", nth: 1, how }, async () => {
      const flush = (): void => log.flush();
      if (how === "short") flush();
      else
        assert.throws(flush, {
          code: "BAD_FILE",
          message: /steps\.bin can't be written: ENOSPC.*The disk is full/,
        });
    });
    log.append(rowOf(6));
    log.close();
    proveRows(path, 1, 6);
  }
});

test("pending rows are written exactly once after writes succeed again", async () => {
  const path = newPath();
  const log = new StepLog(path);
  const rows = bufferSizes.stepRows;
  await withFault({ kind: "write", nth: 1, how: "ENOSPC", isLasting: true }, async () => {
    for (let step = 1; step < rows; step++) log.append(rowOf(step));
    assert.throws(() => log.append(rowOf(rows)), { code: "BAD_FILE" });
    assert.throws(() => log.append(rowOf(rows + 1)), { code: "BAD_FILE" });
  });
  log.close();
  proveRows(path, 1, rows);
});

test("rows or a header that a power cut damaged are removed", () => {
  const path = newPath();
  write(path, 1, 5);
  appendFileSync(path, new Uint8Array(3 * 64));
  const log = new StepLog(path);
  log.dropAfter(7);
  for (let step = 6; step <= 9; step++) log.append(rowOf(step));
  log.close();
  proveRows(path, 1, 9);
  writeFileSync(path, new Uint8Array(1000));
  write(path, 1, 3);
  proveRows(path, 1, 3);
});

test("a truncated header is written again", () => {
  const path = newPath();
  writeFileSync(path, '{"format"');
  write(path, 1, 3);
  proveRows(path, 1, 3);
});

test("rows after a step are dropped, and writing them again gives the same file", () => {
  const path = newPath();
  write(path, 1, 1000);
  const log = new StepLog(path);
  log.dropAfter(640);
  assert.equal(countSteps(path), 640);
  for (let step = 641; step <= 700; step++) log.append(rowOf(step));
  log.close();
  proveRows(path, 1, 700);
});

test("another file is rejected with its name and stays unchanged", () => {
  const path = newPath();
  appendFileSync(path, "x".repeat(600));
  assert.throws(() => new StepLog(path), /steps\.bin is not a step log/);
  assert.throws(() => readSteps(path), /steps\.bin is not a step log/);
});

test("a log is truncated to an earlier size, and never extended", () => {
  const path = newPath();
  const log = new StepLog(path);
  for (let step = 1; step <= 10; step++) log.append(rowOf(step));
  const { bytes } = log;
  log.sync();
  assert.equal(statSync(path).size, bytes);
  for (let step = 11; step <= 30; step++) log.append(rowOf(step));
  log.truncateTo(bytes);
  log.truncateTo(2 * bytes);
  for (let step = 11; step <= 12; step++) log.append(rowOf(step));
  log.close();
  proveRows(path, 1, 12);
});
