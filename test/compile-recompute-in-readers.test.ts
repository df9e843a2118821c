/**
 * Values that a GPU computes again in kernels that load their inputs anyway: the activation of a gated layer is not stored, and the step
 * keeps its bits.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import { accessesOf, type Call } from "../src/compile/program/program.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { type Precision, withNullGpu } from "./support/null-gpu.js";
import { rejectionBy } from "./support/proposed-steps.js";
import { sameBytes } from "./support/same-bytes.js";

/** With one multiprocessor, a value of 128 × 512 floats is large. */
const sizes = { rows: 128, width: 16, hidden: 512 } as const;

interface Options {
  readonly passes?: PassSettings;
  readonly dropout?: number;
  /** True if the layer also multiplies the activation by a matrix. */
  readonly projectsGate?: boolean;
}

class GatedLayer extends nn.Module {
  readonly gate: nn.Linear;
  readonly up: nn.Linear;
  readonly down: nn.Linear;
  readonly #options: Options;

  constructor(options: Options) {
    super();
    const { width, hidden } = sizes;
    this.gate = new nn.Linear(width, hidden);
    this.up = new nn.Linear(width, hidden);
    this.down = new nn.Linear(hidden, width);
    this.#options = options;
  }

  forward(x: Tensor): Tensor {
    const { dropout = 0, projectsGate = false } = this.#options;
    const gate = this.gate.forward(x).silu(); // [rows, hidden]
    const activation = dropout > 0 ? nn.functional.dropout(gate, dropout, true) : gate;
    const y = this.down.forward(activation.mul(this.up.forward(x)));
    return projectsGate ? y.add(this.down.forward(activation)) : y;
  }
}

function trained(device: Device, options: Options) {
  manualSeed(3);
  const model = new GatedLayer(options).to(device);
  const x = randn([sizes.rows, sizes.width], { device });
  const step = device.compile(
    (input: Tensor) => {
      const loss = model.forward(input).square().mean();
      loss.backward();
      return loss;
    },
    { passes: options.passes ?? {} },
  );
  const loss = step(x).item();
  const { planned } = latestPlanOf(step)!;
  const gradients = model.parameters().map(({ grad }) => grad!.dataSync() as Float32Array);
  step.close();
  return { loss, gradients, planned, calls: planned.schedule.calls.map(({ call }) => call) };
}

const kept = { recomputeInReaders: false } as const;

/** How many buffers of the hidden layer's size the calls write. */
function countLarge(calls: readonly Call[]): number {
  const large = calls.flatMap((call) =>
    accessesOf(call)
      .filter(({ slice, writes }) => writes && slice.buffer.bytes === 4 * sizes.rows * sizes.hidden)
      .map(({ slice }) => slice.buffer),
  );
  return new Set(large).size;
}

describe("a compiled step on a GPU", { skip: emulatorMissing }, () => {
  test("computes the activation of a gated layer again instead of storing it, to the same bits", () => {
    const device = openEmulatorGpu({ multiprocessors: 1, capture: "off" });
    for (const dropout of [0, 0.5]) {
      const [stored, recomputed] = [trained(device, { dropout, passes: kept }), trained(device, { dropout })];
      assert.equal(countLarge(recomputed.calls), countLarge(stored.calls) - 1);
      assert.equal(recomputed.calls.length, stored.calls.length);
      assert.equal(recomputed.loss, stored.loss);
      for (const [index, values] of stored.gradients.entries())
        sameBytes(recomputed.gradients[index]!, values, `gradient ${index}`);
    }
  });
});

describe("a plan for a GPU", () => {
  const planned = (precision: Precision, options: Options) =>
    withNullGpu(precision, (device) => trained(device, options), { multiprocessors: 1 });

  test("stores the activation with `rematerialize: false`", () => {
    const stored = planned("f32", { passes: { rematerialize: false } });
    assert.equal(countLarge(stored.calls), countLarge(planned("f32", {}).calls) + 1);
  });

  test("stores the activation if a GEMM reads it", () => {
    const [stored, recomputed] = [kept, {}].map((passes) => planned("f32", { passes, projectsGate: true }));
    assert.equal(countLarge(recomputed!.calls), countLarge(stored!.calls));
  });

  test("is rejected if the gate is overwritten before it is read again", () => {
    const { planned: step, calls } = planned("f32", {});
    const { schedule, plan } = step;
    assert.equal(rejectionBy({ program: calls, schedule, plan }), undefined);
    const last = calls.findLastIndex(({ op }) => op.includes("silu"));
    const swapped = schedule.calls
      .with(last, schedule.calls[last + 1]!)
      .with(last + 1, schedule.calls[last]!);
    assert.match(String(rejectionBy({ program: calls, schedule: { calls: swapped }, plan })), /order/);
  });
});
