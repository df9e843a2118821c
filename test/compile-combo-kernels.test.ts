/**
 * A training step on a GPU with small kernels in combo kernels: it and every replay have the eager step's
 * bits, on one stream and on several.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor, tensor } from "holdfast";
import { PlacedStep, StepBlock } from "../src/compile/execute/placed-step.js";
import { assignStreams, type PassSettings } from "../src/compile/index.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { withNullGpu } from "./support/null-gpu.js";
import { sameBytes } from "./support/same-bytes.js";

type Step = (x: Tensor, y: Tensor) => { readonly loss: Tensor };

/** Three steps of a classifier; the weights after them. */
function train(device: Device, prepare: (step: Step) => Step): Float32Array[] {
  manualSeed(3);
  const layers = [new nn.Linear(20, 24), new nn.GELU(), new nn.Linear(24, 4)];
  const model = new nn.Sequential(...layers).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const step = prepare((x, y) => {
    const loss = nn.functional.crossEntropy(model.forward(x), y);
    loss.backward();
    optim.clipGradNorm(model.parameters(), 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  });
  const x = randn([40, 20], { device });
  const y = tensor(
    Int32Array.from({ length: 40 }, (_, row) => row % 4),
    { device },
  );
  for (let round = 0; round < 3; round++) step(x, y);
  return [...model.parameters()].map((parameter) => parameter.dataSync() as Float32Array);
}

describe("a compiled step on a GPU", { skip: emulatorMissing }, () => {
  const device = emulatorMissing ? undefined! : openEmulatorGpu({ capture: "auto" });

  const compile = (passes: PassSettings, on = device) => {
    const recorded: { step?: object; text?: string } = {};
    const weights = train(on, (step) => {
      const compiled = on.compile(step, { passes });
      recorded.step = compiled;
      return (x, y) => {
        const result = compiled(x, y);
        recorded.text = compiled.explain();
        return result;
      };
    });
    const { planned } = latestPlanOf(recorded.step!)!;
    return {
      weights,
      planned,
      calls: planned.schedule.calls.map(({ call }) => call),
      text: recorded.text ?? "",
    };
  };

  test("records its loss in a combo kernel, says so, and has the eager weights to the bit", () => {
    const eager = train(device, (step) => step);
    const runs = [compile({ streams: false }), compile({ comboKernels: false }), compile({ streams: true })];
    for (const { weights } of runs) {
      for (const [index, values] of eager.entries()) sameBytes(weights[index]!, values, `parameter ${index}`);
    }
    const [combined, separate] = runs as [(typeof runs)[0], (typeof runs)[0]];
    const groups = combined.calls.flatMap(({ work }) => (work.kind === "combo" ? [work.rows] : []));
    const names = groups.map((rows) => rows.map(({ kernel }) => kernel.name));
    assert.ok(
      names.some((list) => list.some((name) => name.startsWith("ring + count of calls"))),
      `the loss is recorded in a launch of ${names}`,
    );
    assert.ok(separate.calls.every(({ work }) => work.kind !== "combo"));
    const saved = groups.reduce((sum, rows) => sum + rows.length - 1, 0);
    assert.equal(separate.calls.length, combined.calls.length + saved);
    assert.match(
      combined.text,
      / \d+ → +\d+ +comboKernels, on a GPU, small row kernels share a launch with independent/m,
    );
    assert.match(separate.text, / comboKernels: left out, as the settings say/m);
  });

  test("submits one command for each combo call, on one stream and on several, where the late passes run again", () => {
    withNullGpu("f32", (on) => {
      const { planned } = compile({ streams: false, renameBuffers: false }, on);
      const streamed = assignStreams(on.runtime, planned, { streams: 2, lag: 1 });
      assert.ok(streamed, "gradients of weights run on side streams");
      for (const plan of [planned, streamed]) {
        const indices = plan.schedule.calls.flatMap(({ call }, index) =>
          call.work.kind === "combo" ? [index] : [],
        );
        assert.ok(indices.length > 0);
        const block = new StepBlock(on.runtime, plan.plan.bytes, "again");
        const step = PlacedStep.place(on.runtime, plan, block);
        block.release();
        const submitted = step.commands.map(({ call }) => call).filter((call) => indices.includes(call));
        assert.deepEqual(submitted, indices);
        step.close();
      }
    });
  });
});
