/**
 * The verifier's purpose, on a training step that runs: faults of the kinds that it rejects, when run anyway,
 * give other gradients or fail; and everything that it accepts gives the same gradients, bit for bit.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { openStrictDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { trainingFaults } from "./support/faulted-training.js";
import { planFaults } from "./support/injected-plans.js";
import { rejectionBy } from "./support/proposed-steps.js";
import { testDevice, testDeviceKind } from "./support/test-device.js";
import { type RunOutcome, traceTraining } from "./support/traced-training.js";

const training = traceTraining(openStrictDevice());

/** The state after the sound step. */
const sound = training.run(training.straight)[0]!;
assert.ok(!("rejection" in sound));

type Kept = "gradients" | "persistent";

function isSame(outcome: RunOutcome, what: Kept): boolean {
  if ("rejection" in outcome || "rejection" in sound) return false;
  return outcome[what].every((bytes, index) => Buffer.compare(bytes, sound[what][index]!) === 0);
}

/** This many entries of a list, spread evenly. */
function someOf<T>(items: readonly T[], max: number): T[] {
  return items.filter((_, index) => index % Math.ceil(items.length / max) === 0);
}

for (const name of ["straight", "streamed"] as const) {
  test(`a sound step, ${name}, passes, and its gradients are those of eager code`, () => {
    assert.equal(rejectionBy(training[name]), undefined);
    for (const outcome of training.run(training[name])) {
      assert.ok(isSame(outcome, "persistent"), `${name}: another state`);
      assert.ok(!("rejection" in outcome));
      for (const [index, bytes] of outcome.gradients.entries())
        assert.equal(Buffer.compare(bytes, training.eager[index]!), 0, `gradient ${index}`);
    }
  });
}

/** This many of each kind are injected, and more if none of them does harm. */
const minInjected = effort({ quick: 1, thorough: 16 });

/** Kernels on CUDA check their addresses, and use narrower accesses if these are unaligned. */
const harmless: ReadonlySet<string> = new Set([
  ...(testDeviceKind === "cuda" ? ["a misaligned offset"] : []),
  // The order there is random.
  ...(testDevice === "cuda" ? ["a missing wait that only shared memory needs"] : []),
]);

describe("faults that run unverified harm the gradients", () => {
  const results: { injected: number; rejected: number; otherGradients: number; failures: number }[] = [];

  for (const [name, { rules, injected }] of Object.entries(trainingFaults)) {
    test(`${name}: rejected by the verifier, or else the gradients are right`, () => {
      const steps = someOf(injected(training), 200);
      const counts = { injected: 0, rejected: 0, otherGradients: 0, failures: 0 };
      results.push(counts);
      for (const [index, step] of steps.entries()) {
        if (index >= minInjected && counts.otherGradients + counts.failures > 0) break;
        counts.injected++;
        const rejection = rejectionBy(step);
        const outcomes = training.run(step);
        if (rejection) {
          counts.rejected++;
          assert.equal(rejection.code, "PLAN_REJECTED");
          assert.ok(rules.includes(rejection.numbers["rule"] as never), rejection.message);
          if (outcomes.some((outcome) => "rejection" in outcome)) counts.failures++;
          else if (!outcomes.every((outcome) => isSame(outcome, "gradients"))) counts.otherGradients++;
        } else {
          assert.ok(
            outcomes.every((outcome) => isSame(outcome, "persistent")),
            `number ${index} passed, and changes the state after the step`,
          );
        }
      }
      if (harmless.has(name)) return;
      assert.ok(counts.otherGradients + counts.failures > 0, "none of them does harm");
    });
  }

  test("at least fifteen of the verifier's kinds of faults give other gradients", (context) => {
    const harmful = results.filter(({ otherGradients }) => otherGradients > 0).length;
    const sum = (key: keyof (typeof results)[number]): number =>
      results.reduce((total, counts) => total + counts[key], 0);
    context.diagnostic(
      `${results.length} kinds, ${sum("injected")} injected, ${sum("rejected")} rejected; of these run unverified ` +
        `${sum("otherGradients")} gave other gradients and ${sum("failures")} failed`,
    );
    assert.ok(harmful >= 15, `${harmful} do`);
    for (const name of Object.keys(trainingFaults)) assert.ok(name in planFaults, name);
    for (const name of harmless) assert.ok(name in trainingFaults, name);
  });
});
