/** The three causes of an out-of-memory error. */

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

test("a request larger than the whole arena is mis-sized, independent of the holders", () => {
  assert.equal(diagnoseOom({ ...calm, requested: 2 * GiB, leftOver: GiB }).cause, "mis-sized");
});

test("memory allocated outside any step and never freed is never reset", () => {
  const { cause, why } = diagnoseOom({ ...calm, leftOver: GiB, resets: 0 });
  assert.equal(cause, "never reset");
  assert.match(why, /the arena was never reset/);
});

test("a step that outgrows the arena while the budget has memory left is mis-sized", () => {
  assert.equal(diagnoseOom({ ...calm, allocatedThisStep: GiB, budgetLeft: GiB }).cause, "mis-sized");
});

test("a placement larger than the whole budget is mis-sized, with the advice to raise the budget", () => {
  const { cause, why, help } = diagnoseOom({ ...calm, requested: 3 * GiB, obstacle: "budget" });
  assert.equal(cause, "mis-sized");
  assert.match(why, /exceeds the whole budget: 3 GiB of 2 GiB/);
  assert.match(help, /HOLDFAST_MEMORY/);
});

test("a budget filled by persistent memory is truly full, with the advice to see the holders", () => {
  const { cause, why, help } = diagnoseOom({ ...calm, obstacle: "budget", allocatedThisStep: MiB });
  assert.equal(cause, "truly full");
  assert.match(why, /memory held outside the step takes 2 GiB/);
  assert.match(help, /See the holders/);
});

test("a step that outgrows the budget is truly full", () => {
  assert.equal(diagnoseOom({ ...calm, allocatedThisStep: GiB }).cause, "truly full");
});

test("a device that rejects a request within the budget is truly full, with the device as the reason", () => {
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

test("memory held by pins is truly full, with the pins as the reason", () => {
  const { cause, why, help } = diagnoseOom({ ...calm, pinned: GiB });
  assert.equal(cause, "truly full");
  assert.match(why, /pins hold 1 GiB/);
  assert.match(help, /Unpin/);
});
