/**
 * System calls that fail, one at a time: a sample of all the calls that a training, its resume, its evaluation and its inspection
 * make, another one each time. failing-calls.long.test.ts fails them all.
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

  test("tells an error of Holdfast, loses nothing, and is resumed to the same end", async (t) => {
    const cases = [
      ...(await runs.cases("train")),
      ...(await runs.cases("resume")),
      ...(await runs.cases("evaluate")),
      ...(await runs.cases("inspect")),
    ];
    const sample = sampleOf(cases);
    let failed = 0;
    for (const one of sample) failed += (await runs.disturb(one)).hasFailed ? 1 : 0;
    t.diagnostic(`TEST_SEED=${seed}: ${failed} of ${cases.length} faults, one of each form`);
    assert.ok(failed >= sample.length - 3, "some calls come at times, but most faults must be met");
  });

  test("goes on without a thread that can't be started, or tells why not", async () => {
    const cases = await runs.cases("train with threads");
    assert.deepEqual(
      cases.map(({ fault }) => describeFault(fault)),
      ["listen 1: EADDRINUSE", "listen 1: EACCES", ...[1, 2, 3].map((nth) => `thread ${nth}: EAGAIN`)],
    );
    const codes: number[] = [];
    for (const one of cases) codes.push((await runs.disturb(one)).ended.exitCode);
    // The watchdog and the listener for signals are a help; metrics and the inspector were asked for.
    assert.deepEqual(codes, [1, 4, 0, 0, 1]);
  });

  test("has every line of its metrics once, where it ended between the last checkpoint and its results", async () => {
    const renames = (await runs.cases("resume")).filter(
      ({ fault }) => fault.kind === "rename" && fault.how === "EIO",
    );
    // The last one is that of the status, the one before it that of the results.
    const results = renames.at(-2);
    assert.ok(results);
    const { ended } = await runs.disturb(results);
    assert.match(String(ended.error), /results\.json can't be written: EIO/);
  });
});

test("a process that can't be started is no reason to fail: the watchdog's outside one, and a browser", async () => {
  const settings = { pid: process.pid, stallAfterMs: 1000, reportDir: tmpdir(), onStall: "report" } as const;
  const fault = { kind: "spawn", nth: 1, how: "EAGAIN" } as const;
  const outside = await withFault(fault, async () => {
    const one = new OutsideProcess(settings, { leave: () => undefined, reported: () => undefined });
    await one.settled;
    return one;
  });
  assert.ok(outside.failed);
  assert.match(outside.result.lost ?? "", /^the outside process could not be started: EAGAIN/);
  const browser = await withFault(fault, async () => {
    openBrowser("http://127.0.0.1/");
    await new Promise((done) => setImmediate(done));
  });
  assert.ok(browser.failed);
});

/** Of each kind of call and each form of its failing one case, at any of its places. */
function sampleOf(cases: readonly Case[]): readonly Case[] {
  const forms = new Map<string, Case[]>();
  for (const one of cases) {
    const { kind, how, isLasting } = one.fault;
    const form = `${kind} ${how} ${isLasting}`;
    forms.set(form, [...(forms.get(form) ?? []), one]);
  }
  let state = seed;
  return [...forms.values()].flatMap((alike) => {
    state = (state * 48_271 + 11) % 2_147_483_647;
    return alike[state % alike.length] ?? [];
  });
}
