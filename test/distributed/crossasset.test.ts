/**
 * CrossAsset on several ranks: the bits of one process, also after a rank was killed, and with another number of ranks afterwards.
 *
 * @mostlyWaits
 */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readStatus } from "../../src/train/index.js";
import { bitsOf, trainAlone, trainOnRanks } from "../support/crossasset-ranks.js";
import { makeFolder } from "../support/folders.js";
import { lacksMpi } from "../support/ranks.js";

const epochs = 3;

test("a run whose rank 1 is killed, resumed in one process, has the bits of an uninterrupted one", {
  skip: lacksMpi("openmpi"),
}, async () => {
  const [whole, killed] = [join(makeFolder(), "whole"), join(makeFolder(), "killed")];
  const alone = trainAlone({ out: whole, epochs });
  let isKilled = false;
  const ranks = trainOnRanks(
    { out: killed, epochs, more: ["--shard-optimizer"] },
    {
      ...{ mpi: "openmpi", size: 2 },
      onOutput: (output) => {
        // After the second epoch.
        if (isKilled || (output.match(/"kind":"checkpoint"/g)?.length ?? 0) < 2) return;
        isKilled = true;
        process.kill(ranks.processOf(1) ?? assert.fail(output), "SIGKILL");
      },
    },
  );
  const { output } = await ranks.result;
  assert.match(output, /holdfast: RANK_LOST: Rank 1 .* is lost: its process has ended without a goodbye/);
  const { state, exitCode } = readStatus(killed) ?? {};
  assert.deepEqual([state, exitCode], ["failed", 6]);
  const files = readdirSync(join(killed, "checkpoints")).sort();
  assert.match(files.at(-2) ?? "", /^step-\d{9}\.rank-1\.[0-9a-f]{16}\.safetensors$/);
  assert.ok(readdirSync(killed).includes("recorder.rank-1.log"));
  await trainAlone({ out: killed, epochs, more: ["--resume"] });
  await alone;
  assert.deepEqual(bitsOf(killed), bitsOf(whole));
});
