/** Prologue fusion: the norm before the projections of one row runs in their launch, in steps whose GEMMs may round differently. */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { type Device, manualSeed, nn, noGrad, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";

const width = 64;

afterEach(() => {
  if (!emulatorMissing) openEmulator().reset();
});

interface Options {
  readonly rows?: number;
  /** True if the normalised row is a result too. */
  readonly returnsNorm?: boolean;
  readonly passes?: PassSettings;
}

/** A residual sum, its norm, and two projections of that: the numbers of the results, and the kinds of the step's calls. */
function project(device: Device, { rows = 1, returnsNorm = false, passes = {} }: Options = {}) {
  manualSeed(7);
  const norm = new nn.RMSNorm(width).to(device, "bf16");
  const [first, second] = [48, 16].map((size) => new nn.Linear(width, size).to(device, "bf16"));
  const [x, y] = [0, 1].map(() => randn([rows, width], { device }).to("bf16"));
  const step = device.compile(
    (x: Tensor, y: Tensor) =>
      noGrad(() => {
        const sum = x.add(y);
        const normalised = norm.forward(sum);
        const results = [sum, first!.forward(normalised), second!.forward(normalised)];
        return returnsNorm ? [...results, normalised] : results;
      }),
    { passes },
  );
  const numbers = step(x!, y!).map((result) => Array.from(result.to("f32").dataSync(), Number));
  const calls = latestPlanOf(step)?.planned.schedule.calls ?? [];
  return { numbers, kinds: calls.map(({ call }) => call.work.kind) };
}

describe("the norm before projections of one row", { skip: emulatorMissing }, () => {
  const device = emulatorMissing
    ? undefined!
    : openEmulatorGpu({ precision: "bf16", multiprocessors: 1, capture: "off" });

  test("runs in their launch, which stores the sum too; results are those without", () => {
    const fused = project(device);
    const plain = project(device, { passes: { gemmPrologues: false } });
    assert.deepEqual(
      fused.kinds.filter((kind) => kind === "gemm-prologue"),
      ["gemm-prologue"],
    );
    assert.ok(!fused.kinds.includes("grouped-gemm") && plain.kinds.includes("grouped-gemm"));
    assert.deepEqual(fused.numbers[0], plain.numbers[0]);
    for (const [result, numbers] of fused.numbers.entries()) {
      const largest = Math.max(...plain.numbers[result]!.map(Math.abs));
      for (const [index, value] of numbers.entries()) {
        const expected = plain.numbers[result]![index]!;
        // Two units in the last place of bf16.
        assert.ok(Math.abs(value - expected) <= largest / 128, `${result}: ${value} instead of ${expected}`);
      }
    }
  });

  test("has a launch of its own for several rows, and if something else reads it", () => {
    for (const options of [{ rows: 2 }, { returnsNorm: true }])
      assert.ok(!project(device, options).kinds.includes("gemm-prologue"), JSON.stringify(options));
  });
});
