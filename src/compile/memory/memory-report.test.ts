/** The report of a small step, by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { StepScript, transformerSchedule } from "../../../test/support/random-steps.js";
import type { Storage } from "../../runtime/index.js";
import { address, bytes } from "../../units/index.js";
import { lifetimesOf } from "../schedule/liveness.js";
import { memoryOf } from "./memory-report.js";
import { planMemory } from "./plan.js";

function persistent(label: string, size: number): Storage {
  const span = { address: address(0), size: bytes(size) };
  return { kind: "persistent", span, generation: 0, label, home: {}, owner: undefined };
}

test("a report has the call at the peak, the holders of memory there, and the persistent memory", () => {
  const step = new StepScript();
  const weight = step.buffer("weight", 4096, persistent("weight", 4096));
  const bias = step.buffer("bias", 64, persistent("bias", 64));
  const x = step.make("load", [], 1000);
  const y = step.make("linear", [x, weight, bias], 2048);
  const z = step.make("gelu", [y], 2048);
  step.make("linear", [z, weight, x], 300, 300);
  step.make("sum", [z], 0);
  const plan = planMemory(lifetimesOf(step.schedule));
  assert.deepEqual(memoryOf(step.schedule, plan), {
    peak: plan.bytes,
    lowerBound: 1024 + 2048 + 2048,
    at: 2,
    op: "gelu",
    holders: [
      { label: "gelu", bytes: 2048, count: 1 },
      { label: "linear", bytes: 2048, count: 1 },
      { label: "load", bytes: 1024, count: 1 },
    ],
    persistent: [
      { label: "weight", bytes: 4096 },
      { label: "bias", bytes: 64 },
    ],
  });
});

test("holders with one label are summed, and all holders add up to the lower bound", () => {
  const schedule = transformerSchedule(4, true);
  const { holders, lowerBound, at, op } = memoryOf(schedule, planMemory(lifetimesOf(schedule)));
  assert.equal(
    holders.reduce((sum, { bytes }) => sum + bytes, 0),
    lowerBound,
  );
  assert.equal(new Set(holders.map(({ label }) => label)).size, holders.length);
  assert.equal(holders.find(({ label }) => label === "softmax")?.count, 4);
  assert.equal(schedule.calls[at]?.call.op, op);
});

test("a step without step memory has no peak", () => {
  const report = memoryOf({ calls: [] }, planMemory([]));
  assert.deepEqual(report, { peak: 0, lowerBound: 0, at: -1, op: "", holders: [], persistent: [] });
});
