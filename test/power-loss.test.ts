/**
 * Power cuts at a random sample of the moments of a training and its resume: data that was not synchronized
 * is gone, torn or out of order. power-loss.long.test.ts has every moment.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { effort } from "./support/effort.js";
import { makeFolder } from "./support/folders.js";
import { CutRuns } from "./support/power-cut-runs.js";

/** TEST_SEED=number repeats a sample. */
const seed = Number(process.env["TEST_SEED"] ?? Date.now() % 100_000);
const cuts = effort({ quick: 5, thorough: 16 });
const lastMoments = effort({ quick: 2, thorough: 5 });
const runs = await CutRuns.prepare(makeFolder());

test("a run whose machine lost power is resumed to the same end, and has every record", async (t) => {
  const { moments } = runs;
  t.diagnostic(`TEST_SEED=${seed}: ${cuts} of ${moments} moments`);
  const first = seed % Math.ceil(moments / cuts);
  for (let cut = 0; cut < cuts; cut++)
    await runs.cut(Math.min(moments, first + Math.floor((cut * moments) / cuts)), seed + cut);
  // Around the moment at which it reports its end: nothing is written after that.
  for (let before = lastMoments; before > 0; before--) await runs.cut(moments - before, seed + before);
  assert.equal(await runs.cut(moments, seed), "finished");
});

test("red proof: if nothing is synchronized, a power cut damages the run", async () => {
  const careless = runs.withoutSynchronization();
  await assert.rejects(async () => {
    for (let draw = 0; draw < 20; draw++) await careless.cut(careless.moments, draw);
  });
});
