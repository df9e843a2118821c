/**
 * CrossAsset on several ranks: the bits of one process, also after a rank was killed, and with another number of ranks afterwards.
 *
 * @mostlyWaits
 */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { traceRun } from "../../src/inspect/exports/index.js";
import { readRanks, readStatus } from "../../src/train/index.js";
import { bitsOf, trainAlone, trainOnRanks } from "../support/crossasset-ranks.js";
import { makeFolder } from "../support/folders.js";
import { lacksMpi } from "../support/ranks.js";
import { checkTrace } from "../support/trace-format.js";

const epochs = 3;

/** The trace has what both ranks did, on one clock. */
function requireMergedTrace(run: string): void {
  const { spans } = checkTrace(JSON.stringify(traceRun(run)));
  const processes = [0, 1].map((rank) => {
    const title = [...spans.keys()].find((name) => name.startsWith(`run killed, rank ${rank} (process `));
    return title?.replace(/: .*/, "") ?? assert.fail([...spans.keys()].join("\n"));
  });
  const [first, second] = processes.map((title) => {
    const phases = spans.get(`${title}: phases and copies`) ?? [];
    return phases.find(({ name }) => name === "compile (train)") ?? assert.fail(title);
  });
  // Rank 1 compiles what rank 0 does, and waits for it.
  assert.ok(first && second && first.begin < second.end && second.begin < first.end);
  const { ranks, messages } = readRanks(run);
  assert.deepEqual([ranks.map(({ rank }) => rank), messages], [[0, 1], []]);
  for (const { spans: steps } of ranks)
    assert.ok(steps.some(({ traffic }) => traffic && traffic.collectives > 0 && traffic.sentBytes > 0));
}

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
  requireMergedTrace(killed);
  await trainAlone({ out: killed, epochs, more: ["--resume"] });
  await alone;
  assert.deepEqual(bitsOf(killed), bitsOf(whole));
});
