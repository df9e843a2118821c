/**
 * S4: a model of any width can be trained, and a plan that the verifier rejects is rebuilt without passes,
 * with a warning.
 */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { type DeviceOptions, nn, optim, type Tensor } from "holdfast";
import type { PlannedStep } from "../../src/compile/index.js";
import { accessesOf, type Call, Program } from "../../src/compile/program/program.js";
import { verifyPlan } from "../../src/compile/verify/verify.js";
import { keepBatch } from "../support/compiled-training.js";
import { withDevice } from "../support/devices.js";
import { makeFolder } from "../support/folders.js";
import { planAllSchedules, withNullGpu } from "../support/null-gpu.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { widthWorkloads } from "../support/width-workloads.js";

let planned: readonly PlannedStep[] | undefined;

/** The plans of CrossAsset of width 100. */
function planCrossAsset(): readonly PlannedStep[] {
  planned ??= withNullGpu("f32", (device) => {
    const { step } = widthWorkloads.crossAsset(device, { width: 100, batch: 8, isPlannedOnly: true });
    return planAllSchedules(device, step);
  });
  return planned;
}

regressionRow<(call: Call) => Call>({
  row: "S4",
  rule: "CrossAsset of width 100 has a plan on a GPU, in which layers have aligned strides with padding that nothing reads",
  sound: (call) => call,
  faults: {
    "strided rows count as read from the first byte to the last": (call) => {
      const { op, work } = call;
      if (work.kind !== "row" && work.kind !== "combo") return call;
      const accesses = accessesOf(call);
      const parameters = accesses.map(({ writes }) => (writes ? ("out" as const) : ("in" as const)));
      const kernel = { type: "kernel", id: 0, name: op, parameters } as const;
      return {
        op,
        work: { kind: "launch", kernel, blocks: 1, arguments: accesses.map(({ slice }) => slice) },
      };
    },
  },
  check(seen) {
    for (const { schedule, stages, plan } of planCrossAsset()) {
      const calls = new Map(stages.at(-1)!.calls.map((call) => [call, seen(call)]));
      const scheduled = schedule.calls.map((entry) => ({ ...entry, call: calls.get(entry.call)! }));
      verifyPlan([...calls.values()], { ...schedule, calls: scheduled }, plan);
    }
  },
});

/** Fused kernels run at the position of their first member, even if that is before another member's input. */
const atFirstMember: Partial<Program> = {
  fusionAnchor: (a, b) => (a.isBefore(b) ? a : b),
};

regressionRow<DeviceOptions>({
  row: "S4",
  rule: "a compiled step whose plan is rejected runs without the pass at fault and those after it: eager bits, one warning, a report, and explain() says so",
  sound: { onRejectedPlan: "fallback" },
  faults: { "a rejection ends the user's training": { onRejectedPlan: "error" } },
  check(options) {
    const [reports, printed]: [string, string[]] = [makeFolder(), []];
    const print = (text: string): void => void printed.push(text);
    withDevice({ ...options, reports, print }, (device) => {
      const train = (run: (body: (x: Tensor, y: Tensor) => Tensor) => (x: Tensor, y: Tensor) => number) => {
        const model = new nn.Sequential(
          new nn.Linear(6, 16),
          new nn.LayerNorm(16),
          new nn.GELU(),
          new nn.Linear(16, 3),
        );
        for (const parameter of model.parameters())
          parameter.initialize((shape) =>
            Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, at) => Math.sin(at)),
          );
        model.to(device);
        const optimizer = new optim.AdamW(model.parameters(), { lr: 0.02 });
        const [x, y] = keepBatch(device, 1);
        const step = run((features, labels) => {
          optimizer.zeroGrad();
          const loss = nn.functional.crossEntropy(model.forward(features), labels);
          loss.backward();
          optimizer.step();
          return loss;
        });
        return Array.from({ length: 3 }, () => step(x, y));
      };
      const eager = train((body) => (x, y) => device.step(() => body(x, y).item()));
      printed.splice(0);
      let explained = "";
      const compiled = train((body) => {
        const step = device.compile(body, { name: "training" });
        return (x, y) => {
          const loss = withMethods(Program.prototype, atFirstMember, () => step(x, y).item());
          explained = step.explain({ calls: false });
          return loss;
        };
      });
      assert.deepEqual(compiled, eager);
      const warnings = printed.filter((text) => text.includes("the verifier rejected"));
      assert.equal(warnings.length, 1, printed.join(""));
      const [report = "no report", ...others] = readdirSync(reports);
      assert.deepEqual(others, []);
      assert.match(
        warnings[0]!,
        /^holdfast: the verifier rejected a plan of compiled training, .* without the phase "verticalFusion"/,
      );
      assert.ok(warnings[0]!.includes(report), warnings[0]);
      assert.match(
        explained,
        /^verticalFusion +verticalFusion: left out: the verifier rejected the plan with it/m,
      );
    });
  },
});
