/**
 * N11: initialisation, shuffling and dropout could not be seeded, so that no run could be repeated. One seed
 * drives all three: two processes print the same hashes, with garbage collected in every step or not.
 */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { regressionRow } from "../support/regressions.js";
import { repositoryRoot } from "../support/repository.js";
import { shortRunFlags } from "../support/short-process.js";

const script = join(repositoryRoot, "dist/test/fixtures/seeded-run.js");

const kinds = ["seeded", "unseeded weights", "unseeded shuffle", "unseeded dropout"];

/** The output of a process for each kind of draws: hashes of first weights, orders and trained weights. */
async function hashesOf(isCollected: "yes" | "no"): Promise<ReadonlyMap<string, readonly string[]>> {
  const args = [...shortRunFlags, script, isCollected, ...kinds];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const lines = stdout.trim().split("\n");
  assert.equal(lines.length, 3 * kinds.length, stdout);
  return new Map(kinds.map((kind, index) => [kind, lines.slice(3 * index, 3 * index + 3)]));
}

const processes = Promise.all([hashesOf("no"), hashesOf("yes")]);

regressionRow<string>({
  row: "N11",
  rule: "one seed gives two processes the same bits in first weights, shuffles and dropout, under forced collection too",
  sound: "seeded",
  faults: {
    "first weights from Math.random": "unseeded weights",
    "a shuffle from Math.random": "unseeded shuffle",
    "dropout from Math.random": "unseeded dropout",
  },
  async check(draws) {
    const [first, second] = await processes;
    assert.deepEqual(second.get(draws), first.get(draws));
  },
});
