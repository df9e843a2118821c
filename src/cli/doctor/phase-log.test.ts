/** Phases of the doctor's test: their outcomes, and the effect of a failure or an overrun on later phases. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError } from "../../errors/index.js";
import { FakeClock } from "../../units/index.js";
import { check, PhaseLog, phaseNames } from "./phase-log.js";

function openLog() {
  const clock = new FakeClock();
  const events: string[] = [];
  const log = new PhaseLog({
    clock,
    deadlineOf: () => 2000,
    listener: {
      entered: (name) => events.push(`${name} entered`),
      left: ({ name, outcome }) => events.push(`${name} ${outcome}`),
    },
  });
  const runFor = (elapsedMs: number) => () => {
    clock.advance(elapsedMs);
    return { value: elapsedMs, detail: "done", figures: { elapsedMs } };
  };
  return { log, heard: events, runFor };
}

test("a log whose phases all pass in time has passed", () => {
  const { log, heard: events, runFor } = openLog();
  for (const name of phaseNames) assert.equal(log.run(name, runFor(2000)), 2000);
  assert.equal(log.hasPassed, true);
  assert.deepEqual(log.results[0], {
    name: "open",
    outcome: "passed",
    elapsedMs: 2000,
    deadlineMs: 2000,
    detail: "done",
    figures: { elapsedMs: 2000 },
    failure: "",
  });
  assert.deepEqual(events.slice(0, 3), ["open entered", "open passed", "upload entered"]);
});

test("a phase that exceeds its deadline fails the log, and passes its value to the next phases", () => {
  const { log, runFor } = openLog();
  for (const name of phaseNames) assert.equal(log.run(name, runFor(name === "eager" ? 2001 : 1)) > 0, true);
  assert.equal(log.hasPassed, false);
  const failed = log.results.filter(({ outcome }) => outcome === "failed");
  assert.deepEqual(
    failed.map(({ name, failure, detail }) => [name, failure, detail]),
    [["eager", "It took 2s; its deadline is 2s.", "done"]],
  );
});

test("a phase that throws fails with its reason, and the next phases are skipped", () => {
  const { log, heard: events, runFor } = openLog();
  log.run("open", runFor(1));
  const reasons = [
    [() => check(false, () => "It is damaged."), /^It is damaged\.$/],
    [() => fail(new HoldfastError("NO_CUDA", "There is none.")), /^NO_CUDA: There is none\.$/],
    [() => fail(new TypeError("x is undefined")), /^TypeError: x is undefined\n +at /],
  ] as const;
  for (const [reason, expected] of reasons) {
    assert.throws(() => log.run("upload", () => ({ value: reason(), detail: "" })));
    assert.match(log.results.pop()?.failure ?? "", expected);
  }
  assert.throws(() => log.run("upload", () => fail(new Error("again"))));
  log.skipRest();
  assert.equal(log.hasPassed, false);
  assert.equal(log.results.length, phaseNames.length);
  assert.deepEqual(events.slice(-2), ["replay skipped", "close skipped"]);
});

function fail(error: Error): never {
  throw error;
}
