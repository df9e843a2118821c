/**
 * Compiled steps with injected faults: the verifier rejects each, by the rule that it breaks. If the fault
 * can change the result of a step, a run of the same plan on modelled memory shows that it does.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { planRules, verifyPlan } from "../src/compile/verify/verify.js";
import { span } from "../src/units/index.js";
import { copiedStep, copiedWeights, sliceOfElements, updateCall } from "./support/copied-step.js";
import { planFaults, planWithWait, splitReductions } from "./support/injected-plans.js";
import { agree, runPlanned, runProgram } from "./support/modelled-run.js";
import { type ProposedStep, planDisjoint, scheduleOn } from "./support/proposed-steps.js";
import { rejectionOf } from "./support/rejections.js";
import { sideBySideCalls, straightStep, streamedStep } from "./support/training-step.js";

function verify({ program, schedule, plan, block }: ProposedStep): void {
  verifyPlan(program, schedule, plan, block);
}

/** True if some order that the schedule allows computes another result than the program. */
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
    "on three streams": streamedStep(),
    "with an offset shared after a wait": planWithWait(),
    "with a call that prefetches weights while its predecessor ends": splitReductions(
      straightStep(),
      "matmul2",
      (slice) => slice.buffer.label === "w2",
    ),
    "with two concurrent kernels that read the same buffer": sideBySideCalls(
      straightStep(),
      "weightGradient2",
      "matmulBackward",
    ),
  })) {
    test(`${name}, with shared offsets, with disjoint offsets, and before the block is known`, () => {
      verify(step);
      assert.equal(changesResults(step), false);
      verify({ ...step, plan: planDisjoint(step.schedule) });
      verifyPlan(step.program, step.schedule, step.plan);
    });
  }

  test("with a weight copy that the update stores", () => {
    verify(
      copiedStep((sketch, memory) => {
        sketch.launch("matmul", { reads: [memory.copy], writes: [memory.y] });
        sketch.program.push(updateCall(memory));
        sketch.launch("matmul of the next weights", { reads: [memory.copy], updates: [memory.y] });
      }),
    );
  });

  test("with a weight copy that other calls store, part by part", () => {
    verify(
      copiedStep((sketch, memory) => {
        sketch.launch("matmul", { reads: [memory.copy], writes: [memory.y] });
        sketch.launch("update", { updates: [memory.weights] });
        for (const [first, count] of [
          [0, 24],
          [24, 40],
        ] as const) {
          const [part, copied] = [copiedWeights(memory, first, count), sliceOfElements(memory, first, count)];
          sketch.launch("cast", { reads: [part], writes: [copied] });
        }
      }),
    );
  });

  test("a step that does nothing", () => {
    verifyPlan([], scheduleOn([], []), { bytes: 0, offsets: new Map() }, span(0, 0));
  });

  test("the shared offsets are shared: a plan with disjoint buffers is larger", () => {
    const { schedule, plan } = streamedStep();
    assert.ok(plan.bytes < planDisjoint(schedule).bytes);
  });
});

describe("injected faults are rejected", () => {
  for (const [name, { rule, says, harms, injected }] of Object.entries(planFaults)) {
    test(`${name}, by the rule "${rule}"`, () => {
      const step = injected();
      const error = rejectionOf(() => verify(step));
      assert.ok(error, "the fault was not found");
      assert.equal(error.code, "PLAN_REJECTED");
      assert.equal(error.numbers["rule"], rule, error.message);
      assert.match(error.message, says);
      assert.match(error.message, /was not run/);
      if (harms) assert.ok(changesResults(step), "the faulty plan computes the program's result");
    });
  }

  test("every rule has an injected fault", () => {
    const rules = new Set(Object.values(planFaults).map(({ rule }) => rule));
    assert.deepEqual([...rules].sort(), Object.keys(planRules).sort());
  });
});
