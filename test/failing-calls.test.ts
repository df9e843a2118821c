/**
 * System calls that fail, one at a time: a random sample of all calls of a training, its resume, its
 * evaluation and its inspection. failing-calls.long.test.ts fails all of them.
 */

import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { before, describe, test } from "node:test";
import { openBrowser } from "../src/cli/desktop.js";
import { OutsideProcess } from "../src/runtime/observe/watchdog/outside-process.js";
import { type Case, DisturbedRuns } from "./support/disturbed-runs.js";
import { describeFault, withFault } from "./support/failing-calls.js";
import { makeFolder } from "./support/folders.js";

/** TEST_SEED=number repeats a sample. */
const seed = Number(process.env["TEST_SEED"] ?? Date.now() % 100_000);

describe("a run in which a system call fails", () => {
  const folder = makeFolder();
  let runs: DisturbedRuns;
  before(async () => {
    runs = await DisturbedRuns.prepare(folder);
  });

  test("reports an error of Holdfast, loses nothing, and is resumed to the same end", async (t) => {
    const cases = [
      ...(await runs.cases("train")),
      ...(await runs.cases("resume")),
      ...(await runs.cases("evaluate")),
      ...(await runs.cases("inspect")),
    ];
    const sample = sampleOf(cases);
    let failed = 0;
    for (const runCase of sample) failed += (await runs.disturb(runCase)).hasFailed ? 1 : 0;
    t.diagnostic(`TEST_SEED=${seed}: ${failed} of ${cases.length} faults, one of each kind of call`);
    assert.ok(failed >= sample.length - 3, "some calls depend on the time, but most faults must be reached");
  });

  test("continues without a thread that can't be started, or reports why not", async () => {
    const cases = await runs.cases("train with threads");
    assert.deepEqual(
      cases.map(({ fault }) => describeFault(fault)),
      ["listen 1: EADDRINUSE", "listen 1: EACCES", ...[1, 2, 3].map((nth) => `thread ${nth}: EAGAIN`)],
    );
    const codes: number[] = [];
    for (const runCase of cases) codes.push((await runs.disturb(runCase)).ended.exitCode);
    // The watchdog and the signal listener are optional; metrics and the inspector were requested.
    assert.deepEqual(codes, [1, 4, 0, 0, 1]);
  });

  test("has every line of its metrics once, if it ended between the last checkpoint and its results", async () => {
    const renames = (await runs.cases("resume")).filter(
      ({ fault }) => fault.kind === "rename" && fault.how === "EIO",
    );
    // The last write is the status, the one before it the results.
    const results = renames.at(-2);
    assert.ok(results);
    const { ended } = await runs.disturb(results);
    assert.match(String(ended.error), /results\.json can't be written: EIO/);
  });
});

test("a process that can't be started is not an error: the watchdog's outside process, and a browser", async () => {
  const settings = { pid: process.pid, stallAfterMs: 1000, reportDir: tmpdir(), onStall: "report" } as const;
  const fault = { kind: "spawn", nth: 1, how: "EAGAIN" } as const;
  const outside = await withFault(fault, async () => {
    const outside = new OutsideProcess(settings, { leave: () => undefined, reported: () => undefined });
    await outside.settled;
    return outside;
  });
  assert.ok(outside.failed);
  assert.match(outside.result.lost ?? "", /^the outside process could not be started: EAGAIN/);
  const browser = await withFault(fault, async () => {
    openBrowser("http://127.0.0.1/");
    await new Promise((done) => setImmediate(done));
  });
  assert.ok(browser.failed);
});

/** One case for each kind of call: a random failure of a random call. */
function sampleOf(cases: readonly Case[]): readonly Case[] {
  const kinds = new Map<string, Case[]>();
  for (const runCase of cases) {
    const { kind } = runCase.fault;
    kinds.set(kind, [...(kinds.get(kind) ?? []), runCase]);
  }
  let state = seed;
  return [...kinds.values()].flatMap((alike) => {
    state = (state * 48_271 + 11) % 2_147_483_647;
    return alike[state % alike.length] ?? [];
  });
}
