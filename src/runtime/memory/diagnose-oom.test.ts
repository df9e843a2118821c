/** The three verdicts on a full arena. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { GiB, MiB } from "../../units/index.js";
import { diagnoseOom, type OomFigures } from "./diagnose-oom.js";

const calm: OomFigures = {
  requested: MiB,
  obstacle: "arena",
  capacity: GiB,
  limit: 2 * GiB,
  pinned: 0,
  allocatedThisStep: 0,
  leftOver: 0,
  resets: 5,
  budgetLeft: 0,
};

test("a request larger than the whole arena is mis-sized, whatever else holds memory", () => {
  assert.equal(diagnoseOom({ ...calm, requested: 2 * GiB, leftOver: GiB }).cause, "mis-sized");
});

test("memory made outside any step and never ended is called never reset", () => {
  const { cause, why } = diagnoseOom({ ...calm, leftOver: GiB, resets: 0 });
  assert.equal(cause, "never reset");
  assert.match(why, /the arena was never reset/);
});

test("a step that outgrows the arena while the budget has room is mis-sized", () => {
  assert.equal(diagnoseOom({ ...calm, allocatedThisStep: GiB, budgetLeft: GiB }).cause, "mis-sized");
});

test("a placement larger than the whole budget is mis-sized, and the budget is what to raise", () => {
  const { cause, why, help } = diagnoseOom({ ...calm, requested: 3 * GiB, obstacle: "budget" });
  assert.equal(cause, "mis-sized");
  assert.match(why, /exceeds the whole budget: 3 GiB of 2 GiB/);
  assert.match(help, /HOLDFAST_MEMORY/);
});

test("a budget that persistent memory fills is truly full, and the holders are what to look at", () => {
  const { cause, why, help } = diagnoseOom({ ...calm, obstacle: "budget", allocatedThisStep: MiB });
  assert.equal(cause, "truly full");
  assert.match(why, /memory held outside the step takes 2 GiB/);
  assert.match(help, /See the holders/);
});

test("a step that outgrows the budget is truly full", () => {
  assert.equal(diagnoseOom({ ...calm, allocatedThisStep: GiB }).cause, "truly full");
});

test("a device that rejects what the budget allows is truly full, and the budget is not to blame", () => {
  const { cause, why, help } = diagnoseOom({
    ...calm,
    allocatedThisStep: GiB,
    budgetLeft: GiB,
    obstacle: "memory",
  });
  assert.equal(cause, "truly full");
  assert.match(why, /the device has no more memory, although the budget still has 1 GiB/);
  assert.match(help, /lower HOLDFAST_MEMORY/);
});

test("where pins hold the memory, the cause says so", () => {
  const { cause, why, help } = diagnoseOom({ ...calm, pinned: GiB });
  assert.equal(cause, "truly full");
  assert.match(why, /pins hold 1 GiB/);
  assert.match(help, /Unpin/);
});
