/** The budget: charges, rejections with their text, memory pressure. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError } from "../../errors/index.js";
import { bytes, GiB, MiB } from "../../units/index.js";
import { Recorder } from "../observe/recorder.js";
import { SharedStatus } from "../observe/shared-status.js";
import { Budget } from "./budget.js";
import type { OutOfMemory } from "./diagnose-oom.js";

function open(limit: number, available = () => bytes(Number.MAX_SAFE_INTEGER)) {
  const sharedStatus = new SharedStatus();
  const reports: (number | OutOfMemory)[] = [];
  const budget: Budget = new Budget({
    limit: bytes(limit),
    reason: "HOLDFAST_MEMORY",
    sharedStatus,
    recorder: new Recorder(),
    available,
    onMemoryPressure: (oom) => reports.push(oom ?? budget.used),
  });
  return { budget, sharedStatus, pressed: reports };
}

test("charges are summed by label, also in the shared status, and are returned", () => {
  const { budget, sharedStatus } = open(GiB);
  const weights = budget.charge("weights", bytes(10 * MiB), "model");
  budget.charge("moments", bytes(20 * MiB), "AdamW");
  assert.equal(budget.used, 30 * MiB);
  assert.equal(sharedStatus.readBudget().weights, 10 * MiB);
  budget.release(weights);
  assert.equal(budget.used, 20 * MiB);
  assert.equal(budget.left, GiB - 20 * MiB);
});

test("a rejection has the request, the rest, the holders and the advice", () => {
  const { budget } = open(100 * MiB);
  budget.charge("weights", bytes(60 * MiB), "model");
  budget.charge("step arena", bytes(30 * MiB), "growth for matmul");
  assert.throws(
    () => budget.charge("gradients", bytes(20 * MiB), "grads"),
    (error) => {
      assert.ok(error instanceof HoldfastError);
      assert.equal(error.code, "OUT_OF_BUDGET");
      assert.equal(error.numbers["left"], 10 * MiB);
      for (const text of [
        "cannot provide 20 MiB (gradients: grads)",
        "10 MiB is left of 100 MiB",
        "limit                  100 MiB   HOLDFAST_MEMORY",
        "· weights               60 MiB",
        "growth for matmul (step arena) 30 MiB",
        "What to change: raise HOLDFAST_MEMORY",
      ]) {
        assert.ok(error.message.includes(text), `${text}\n---\n${error.message}`);
      }
      return true;
    },
  );
  assert.equal(budget.used, 90 * MiB);
});

test("memory that the machine no longer has is rejected even below the limit", () => {
  let available = bytes(GiB);
  const { budget } = open(GiB, () => available);
  budget.charge("weights", bytes(100 * MiB), "model");
  available = bytes(50 * MiB);
  assert.throws(
    () => budget.charge("weights", bytes(60 * MiB), "more"),
    /only 50 MiB is available on this machine/,
  );
  assert.equal(budget.used, 100 * MiB);
});

test("pressure is reported from nine tenths on, and at a rejection with the request", () => {
  const { budget, pressed: reports } = open(100 * MiB);
  budget.charge("weights", bytes(80 * MiB), "a");
  assert.deepEqual(reports, []);
  budget.charge("weights", bytes(15 * MiB), "b");
  assert.throws(() => budget.charge("weights", bytes(6 * MiB), "c"));
  assert.throws(() => budget.charge("step arena", bytes(7 * MiB), "d"));
  assert.deepEqual(reports, [
    95 * MiB,
    { requested: 6 * MiB, obstacle: "budget" },
    { requested: 7 * MiB, obstacle: "memory" },
  ]);
});

test("a charge can be returned once", () => {
  const { budget } = open(GiB);
  const charge = budget.charge("weights", bytes(MiB), "a");
  budget.release(charge);
  assert.throws(
    () => budget.release(charge),
    (error) => error instanceof HoldfastError && error.code === "DOUBLE_FREE",
  );
  assert.equal(budget.used, 0);
});
