/**
 * A training step whose activations are computed in the kernels of products, and whose weight gradients are one launch: what it
 * comes to is what the eager step comes to, as far as half floats and TF32 go; and with eager code's products, its bits.
 */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn } from "holdfast";
import { latestPlanOf } from "../src/tensor/compiled-step.js";
import { openStandIn, standInMissing } from "./support/stand-in.js";
import { openStandInGpu } from "./support/stand-in-gpu.js";

const skip = standInMissing;

afterEach(() => {
  if (!skip) openStandIn().reset();
});

/** Rows and widths with which a result is large enough to be finished, and a gradient long enough for a group. */
const [rows, width, hidden] = [1024, 64, 1024] as const;

type Way = "eager" | "compiled" | "compiled with eager products";

/** Two steps of a feed-forward block; the losses, the kinds of the compiled one's calls, and how many products go together. */
function train(device: Device, way: Way) {
  manualSeed(3);
  const [up, down] = [new nn.Linear(width, hidden), new nn.Linear(hidden, width)].map((layer) =>
    layer.to(device),
  );
  const optimizer = new optim.AdamW([...up!.parameters(), ...down!.parameters()], { lr: 0.001 });
  const x = randn([rows, width], { device });
  const run = () => {
    const loss = down!.forward(up!.forward(x).gelu("tanh")).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  };
  const passes = { products: way === "compiled" };
  const step = way === "eager" ? undefined : device.compile(run, { passes });
  const losses = Array.from({ length: 2 }, () =>
    step ? step().loss.item() : device.step(() => run().loss.item()),
  );
  const work = step ? (latestPlanOf(step)?.planned.schedule.calls ?? []).map(({ call }) => call.work) : [];
  const together = work.flatMap((one) => (one.kind === "products" ? [one.problems.length] : []));
  const finished = work.flatMap((one) => (one.kind === "finished" ? [one.finish.keepsResult] : []));
  step?.close();
  return { losses, together, finished };
}

describe("a compiled step of a feed-forward block", { skip }, () => {
  for (const precision of ["bf16", "tf32"] as const) {
    test(`finishes its products and makes gradients together in ${precision}, and loses as the eager one does`, () => {
      const device = openStandInGpu({ precision, multiprocessors: 132 });
      const [eager, compiled, plain] = (["eager", "compiled", "compiled with eager products"] as const).map(
        (way) => train(device, way),
      );
      // What GELU reads is kept for its gradient; what the gradient reads is not.
      assert.deepEqual(compiled!.finished, [true, false]);
      assert.deepEqual(compiled!.together, [2]);
      for (const [index, loss] of eager!.losses.entries())
        assert.ok(Math.abs(compiled!.losses[index]! - loss) <= 2e-3 * loss, `step ${index}`);
      assert.deepEqual(plain, { losses: eager!.losses, together: [], finished: [] });
    });
  }
});
