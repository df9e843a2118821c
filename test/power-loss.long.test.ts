/** A power cut at every moment of a training and its resume, with several random losses at each. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { makeFolder } from "./support/folders.js";

// Small buffers fill after a few steps. The sizes are read when the library is loaded.
process.env["TEST_HOLDFAST_SIZES"] = "8";
const { CutRuns } = await import("./support/power-cut-runs.js");

const drawsAtEach = 4;
const folder = makeFolder();

test("whenever power is lost, the run is resumed to the same end, and has every record", async (t) => {
  const runs = await CutRuns.prepare(folder);
  const wrong: string[] = [];
  for (let moment = 0; moment <= runs.moments; moment++) {
    for (let draw = 0; draw < drawsAtEach; draw++) {
      try {
        await runs.cut(moment, drawsAtEach * moment + draw);
      } catch (error) {
        wrong.push(error instanceof Error ? error.message : String(error));
      }
    }
  }
  t.diagnostic(`${drawsAtEach} random losses at each of ${runs.moments + 1} moments`);
  assert.deepEqual(wrong.slice(0, 5), [], `${wrong.length} of ${drawsAtEach * (runs.moments + 1)}`);
});
