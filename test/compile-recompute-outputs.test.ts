/**
 * Single outputs of fused kernels that a GPU computes again in backward: a layer norm's result, from the stored sum and row statistics, in
 * the kernel of its gradient.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import type { Call } from "../src/compile/program/program.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { withNullGpu } from "./support/null-gpu.js";
import { sameBytes } from "./support/same-bytes.js";

/** With one multiprocessor, a value of 1024 × 32 floats is worth recomputing. */
const sizes = { rows: 1024, width: 32, blocks: 5 } as const;

class Block extends nn.Module {
  readonly norm: nn.LayerNorm;
  readonly linear: nn.Linear;
  readonly #dropout: number;

  constructor(width: number, dropout: number) {
    super();
    this.norm = new nn.LayerNorm(width);
    this.linear = new nn.Linear(width, width);
    this.#dropout = dropout;
  }

  forward(x: Tensor): Tensor {
    const y = this.linear.forward(this.norm.forward(x)); // [rows, width]
    return x.add(this.#dropout > 0 ? nn.functional.dropout(y, this.#dropout, true) : y);
  }
}

interface Options {
  readonly passes?: PassSettings;
  readonly dropout?: number;
}

function trained(device: Device, { passes = {}, dropout = 0 }: Options) {
  manualSeed(3);
  const blocks = Array.from({ length: sizes.blocks }, () => new Block(sizes.width, dropout));
  const model = new nn.Sequential(...blocks).to(device);
  const x = randn([sizes.rows, sizes.width], { device });
  const step = device.compile(
    (input: Tensor) => {
      const loss = model.forward(input).square().mean();
      loss.backward();
      return loss;
    },
    { passes },
  );
  const loss = step(x).item();
  const { schedule, plan } = latestPlanOf(step)!.planned;
  const gradients = model.parameters().map(({ grad }) => grad!.dataSync() as Float32Array);
  step.close();
  const calls = schedule.calls.map(({ call }) => call);
  return { loss, gradients, bytes: plan.bytes, calls, again: calls.filter(isRecomputed).length };
}

const isRecomputed = ({ op, isRematerialized }: Call): boolean =>
  isRematerialized === true || /layerNorm \+ .*layerNormGradient/.test(op);

describe("a compiled step on a GPU", { skip: emulatorMissing }, () => {
  test("computes a few norms again in the kernels of their gradients, to the same bits, with less memory", () => {
    const device = openEmulatorGpu({ multiprocessors: 1, capture: "off" });
    const kept = trained(device, { passes: { recomputeActivations: false } });
    const recomputed = trained(device, {});
    assert.equal(kept.again, 0);
    assert.ok(recomputed.again > 0 && recomputed.again < sizes.blocks - 1, `${recomputed.again} norms`);
    assert.equal(recomputed.calls.length, kept.calls.length);
    assert.ok(recomputed.bytes <= (15 / 16) * kept.bytes, `${recomputed.bytes} of ${kept.bytes} bytes`);
    assert.equal(recomputed.loss, kept.loss);
    for (const [index, values] of kept.gradients.entries())
      sameBytes(recomputed.gradients[index]!, values, `gradient ${index}`);
  });
});

describe("a plan for a GPU", () => {
  const normsAgain = (multiprocessors: number, dropout: number): number =>
    withNullGpu("f32", (device) => trained(device, { dropout }).again, { multiprocessors });

  test("computes norms again with and without dropout, and keeps them if they are small for the device", () => {
    for (const dropout of [0, 0.25]) {
      assert.ok(normsAgain(1, dropout) > 0);
      assert.equal(normsAgain(2, dropout), 0);
    }
  });
});
