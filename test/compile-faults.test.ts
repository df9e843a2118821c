/**
 * Compiled steps with planted faults: the verifier rejects each, by the rule that it breaks. Where the fault can change
 * what a step computes, a run of the same plan on modelled memory shows that it does.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { planRules, verifyPlan } from "../src/compile/verify/verify.js";
import { span } from "../src/units/index.js";
import { planFaults, planWithWait, splitReductions } from "./support/injected-plans.js";
import { agree, runPlanned, runProgram } from "./support/modelled-run.js";
import { type ProposedStep, planApart, scheduleOn } from "./support/proposed-steps.js";
import { rejectionOf } from "./support/rejections.js";
import { sideBySideCalls, straightStep, streamedStep } from "./support/training-step.js";

function verify({ program, schedule, plan, block }: ProposedStep): void {
  verifyPlan(program, schedule, plan, block);
}

/** Whether some order that the schedule allows computes something else than the program. */
function changesResults(step: ProposedStep): boolean {
  const truth = runProgram(step);
  let state = 1;
  const choose = (count: number): number => {
    state = (state * 48271) % 0x7fffffff;
    return state % count;
  };
  return Array.from({ length: 200 }).some(() => !agree(runPlanned(step, choose), truth));
}

describe("sound steps pass", () => {
  for (const [name, step] of Object.entries({
    "one after the other": straightStep(),
    "on three branches": streamedStep(),
    "with a place shared behind a wait": planWithWait(),
    "with a call that fetches weights while the one before it ends": splitReductions(
      straightStep(),
      "matmul2",
      (slice) => slice.buffer.label === "w2",
    ),
    "with two kernels side by side that read the same": sideBySideCalls(
      straightStep(),
      "weightGradient2",
      "matmulBackward",
    ),
  })) {
    test(`${name}, with shared places, with places of their own, and before the block is known`, () => {
      verify(step);
      assert.equal(changesResults(step), false);
      verify({ ...step, plan: planApart(step.schedule) });
      verifyPlan(step.program, step.schedule, step.plan);
    });
  }

  test("a step that does nothing", () => {
    verifyPlan([], scheduleOn([], []), { bytes: 0, offsets: new Map() }, span(0, 0));
  });

  test("the shared places are shared: a plan that keeps buffers apart is larger", () => {
    const { schedule, plan } = streamedStep();
    assert.ok(plan.bytes < planApart(schedule).bytes);
  });
});

describe("planted faults are rejected", () => {
  for (const [name, { rule, says, harms, injected }] of Object.entries(planFaults)) {
    test(`${name}, by the rule "${rule}"`, () => {
      const step = injected();
      const error = rejectionOf(() => verify(step));
      assert.ok(error, "the fault was not found");
      assert.equal(error.code, "PLAN_REJECTED");
      assert.equal(error.numbers["rule"], rule, error.message);
      assert.match(error.message, says);
      assert.match(error.message, /was not run/);
      if (harms) assert.ok(changesResults(step), "run all the same, it computes what the program says");
    });
  }

  test("every rule has a planted fault", () => {
    const found = new Set(Object.values(planFaults).map(({ rule }) => rule));
    assert.deepEqual([...found].sort(), Object.keys(planRules).sort());
  });
});
