/** Ranks side by side: times, bytes, and which rank makes the others wait. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { samplePlan } from "../../test/support/sample-plan.js";
import { writeSampleRun } from "../../test/support/sample-run.js";
import { readRanks } from "../train/index.js";
import { exchangeOf, rankTable } from "./rank-table.js";

function tableOf(ownMs: readonly (number | null)[], steps = 200) {
  const run = writeSampleRun(makeFolder(), "first", { steps });
  run.writeRanks(ownMs);
  run.close();
  return rankTable(readRanks(run.path).ranks, []).ranks;
}

const slowOf = (ownMs: readonly (number | null)[]): number[] =>
  tableOf(ownMs)
    .filter(({ isSlow }) => isSlow)
    .map(({ rank }) => rank);

test("a rank is slow if its own work is longer than that of the others by a tenth of a step, 20 ms here", () => {
  assert.deepEqual(slowOf([12, 12, 12, 12]), []);
  assert.deepEqual(slowOf([12, 12, 19, 12]), [2]);
  assert.deepEqual(slowOf([12, 13, 12, 12]), []);
  assert.deepEqual(slowOf([5, 12]), [1]);
  assert.deepEqual(slowOf([19, 19, 5, 5, 5]), [0, 1]);
  assert.deepEqual(slowOf([null, null]), []);
});

test("a rank has its times, its bytes and its collectives per step", () => {
  const [first, second] = tableOf([10, 18]);
  assert.equal(first?.stepMs, 20);
  assert.ok(Math.abs((second?.ownMs ?? 0) - 18) < 0.5, String(second?.ownMs));
  assert.deepEqual([first?.sentBytes, first?.collectives, first?.steps], [8_000_000, 2, 200]);
  assert.equal(first?.points.length, 20);
});

test("long runs have few points, which keep the sums", () => {
  const [first] = tableOf(new Array(40).fill(10), 6000);
  assert.ok((first?.points.length ?? 0) <= 20_000 / 40);
  assert.equal(first?.sentBytes, 8_000_000);
});

test("where the host does not see collectives, their bytes are those of the plan", () => {
  const run = writeSampleRun(makeFolder(), "first");
  run.writeRanks([null, null]);
  run.close();
  const plan = samplePlan();
  const [call] = plan.calls;
  const collective = (op: string, readBytes: number) => ({ ...call!, op, kernel: op, readBytes });
  const calls = [...plan.calls, collective("allToAll", 800), collective("allGather", 400)];
  const [first] = rankTable(readRanks(run.path).ranks, [plan, { ...plan, calls }]).ranks;
  assert.deepEqual([first?.stepMs, first?.ownMs], [20, null]);
  assert.deepEqual([first?.collectives, first?.sentBytes], [2, 800]);
  assert.deepEqual(exchangeOf({ calls }, 4), { collectives: 2, sentBytes: 600 + 1200 });
  const reduced = [collective("reduceScatter", 800), collective("allGather", 200)];
  assert.deepEqual(exchangeOf({ calls: reduced }, 4), { collectives: 2, sentBytes: 600 + 600 });
});
