/**
 * A training step with activations in GEMM epilogues, and with grouped weight gradients. Its results equal
 * the eager step's within half floats and TF32, and to the bit with eager GEMMs.
 */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn } from "holdfast";
import { assignStreams, type PlannedStep } from "../src/compile/index.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { effort } from "./support/effort.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { type Precision, withNullGpu } from "./support/null-gpu.js";

const skip = emulatorMissing;

afterEach(() => {
  if (!skip) openEmulator().reset();
});

/**
 * Rows that make a gradient long enough for a group. With the few multiprocessors of the tests, the results
 * are large enough for an epilogue.
 */
const [rows, width, hidden] = [1024, 64, 128];
/** A residual connection needs no group. In bf16, a few rows fill as many multiprocessors with its epilogue. */
const [residualRows, residualMultiprocessors] = effort({ quick: [256, 9], thorough: [1024, 33] });

/** How a step is compiled; undefined for an eager one. */
const variants = {
  eager: undefined,
  compiled: { autotune: true },
  "compiled with eager GEMMs": { autotune: false },
  // Without renamed buffers, a schedule with side streams runs the late passes again. Combo kernels are off;
  // otherwise no small kernel would be left for a side stream.
  "compiled in place": { autotune: true, renameBuffers: false, comboKernels: false },
} as const;

/**
 * Two steps of a feed-forward block: the losses, the kinds of the compiled step's calls, and the sizes of its
 * GEMM groups.
 */
function train(device: Device, variant: keyof typeof variants, units = hidden) {
  manualSeed(3);
  const [up, down] = [new nn.Linear(width, units), new nn.Linear(units, width)].map((layer) =>
    layer.to(device),
  );
  // This work does not depend on the block, so that it can run on a side stream.
  const factor = randn([width], { device, requiresGrad: true });
  const parameters = [up!, down!].flatMap((layer) => [...layer.parameters()]);
  const optimizer = new optim.AdamW([...parameters, factor], { lr: 0.001 });
  const x = randn([rows, width], { device });
  const run = () => {
    const block = down!.forward(up!.forward(x).gelu("tanh")).square().mean();
    const loss = block.add(factor.mul(x).square().mean());
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  };
  const passes = variants[variant];
  const step = passes && device.compile(run, { passes });
  const losses = Array.from({ length: 2 }, () =>
    step ? step().loss.item() : device.step(() => run().loss.item()),
  );
  const planned = step && latestPlanOf(step)?.planned;
  const work = planned?.schedule.calls.map(({ call }) => call.work) ?? [];
  const grouped = work.flatMap((call) => (call.kind === "grouped-gemm" ? [call.problems.length] : []));
  const withEpilogue = work.flatMap((call) => (call.kind === "gemm-epilogue" ? [call.epilogue.storesC] : []));
  const summed = work.flatMap((call) =>
    call.kind === "gemm-epilogue" ? call.epilogue.kernel.outputs.filter(({ per }) => per === "column") : [],
  ).length;
  const launched = work.flatMap((call) => (call.kind === "launch" ? [call.kernel.name] : []));
  step?.close();
  return { losses, together: grouped, finished: withEpilogue, summed, turned: launched, planned };
}

/**
 * The gradients of layers, two of which have a residual connection: the first gets the sum of a GEMM and of
 * the residual's gradient. For a compiled step, also the calls that compute sums of that size.
 */
function residual(device: Device, mode: "eager" | "compiled") {
  manualSeed(5);
  const layers = [new nn.Linear(64, 128), new nn.Linear(128, 64), new nn.Linear(64, 128)];
  const [before, down, up] = layers.map((layer) => layer.to(device));
  const norm = new nn.LayerNorm([128]).to(device);
  const [x, y] = [64, 128].map((columns) => randn([residualRows, columns], { device }));
  const run = () => {
    const h = before!.forward(x!);
    const loss = norm
      .forward(h.add(up!.forward(down!.forward(h))))
      .mul(y!)
      .mean();
    loss.backward();
    return { loss };
  };
  const step = mode === "compiled" ? device.compile(run, { passes: { autotune: true } }) : undefined;
  if (step) step();
  else device.step(() => run().loss.item());
  const gradients = [...layers, norm].flatMap((layer) =>
    [...layer.parameters()].map(({ grad }) => Float32Array.from(grad!.dataSync())),
  );
  const calls = (step && latestPlanOf(step)?.planned.schedule.calls) ?? [];
  const adds = calls.flatMap(({ call: { op, work } }) => (/\badd\b/.test(op) ? [work] : []));
  const epilogues = calls.filter(({ call }) => call.work.kind === "gemm-epilogue").length;
  step?.close();
  return { gradients, sums: adds, finished: epilogues };
}

const precisions = ["bf16", "tf32"] as const;

describe("a compiled step with a residual connection", { skip }, () => {
  for (const precision of effort<readonly Precision[]>({ quick: ["bf16"], thorough: precisions })) {
    test(`adds the residual's gradient in the GEMM's epilogue, in ${precision}, and stores only that sum`, () => {
      const device = openEmulatorGpu({
        precision,
        multiprocessors: residualMultiprocessors,
        capture: "off",
        seesSnapshots: false,
      });
      const [eager, compiled] = (["eager", "compiled"] as const).map((mode) => residual(device, mode));
      // The residual path ends in a norm, which needs whole rows.
      const [there, back, ...others] = compiled!.sums;
      assert.deepEqual([there?.kind, others], ["row", []]);
      assert.ok(back?.kind === "gemm-epilogue");
      const { m, n, k, dtype } = back.problem;
      assert.deepEqual([m, n, k, dtype], [residualRows, 128, 64, precision === "bf16" ? "bf16" : "f32"]);
      assert.equal(back.epilogue.storesC, false);
      // A conversion alone is not an epilogue: where it can, the GEMM stores bf16 itself.
      assert.equal(compiled!.finished, 1);
      for (const [index, values] of eager!.gradients.entries()) {
        const scale = values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
        assert.ok(scale > 0);
        for (const [at, value] of values.entries()) {
          const difference = Math.abs(compiled!.gradients[index]![at]! - value);
          assert.ok(
            difference <= 8e-3 * scale,
            `gradient ${index}, element ${at}: ${difference} of ${scale}`,
          );
        }
      }
    });
  }
});

describe("a compiled step with dropout after a layer", { skip }, () => {
  test("draws in the GEMM's epilogue, and drops what the eager step drops", () => {
    const device = openEmulatorGpu({
      ...{ precision: "bf16", multiprocessors: residualMultiprocessors },
      ...{ capture: "off", seesSnapshots: false },
    });
    manualSeed(7);
    const layer = new nn.Linear(64, 128).to(device);
    const x = randn([residualRows, 64], { device });
    // No element is 0 before dropout.
    const run = () => ({ y: nn.functional.dropout(layer.forward(x).abs().add(1), 0.3) });
    const step = device.compile(run, { passes: { autotune: true } });
    const maskOf = (values: ArrayLike<number>): string =>
      Array.from(values, (value) => (value === 0 ? "0" : "1")).join("");
    device.reseed(11n);
    const eager = device.step(() => maskOf(run().y.dataSync()));
    device.reseed(11n);
    const compiled = maskOf(step().y.dataSync());
    assert.ok(eager.includes("0") && eager.includes("1"));
    assert.equal(compiled, eager);
    const calls = latestPlanOf(step)?.planned.schedule.calls ?? [];
    const epilogues = calls.flatMap(({ call: { work } }) =>
      work.kind === "gemm-epilogue" ? [work.epilogue.kernel.inputs] : [],
    );
    assert.deepEqual(epilogues, [["f32", "draw"]]);
    step.close();
  });
});

describe("a compiled step of a feed-forward block", { skip }, () => {
  for (const precision of effort<readonly Precision[]>({ quick: ["tf32"], thorough: precisions })) {
    test(`fuses epilogues and groups gradients in ${precision}, and has the eager losses`, () => {
      // Few enough multiprocessors for large tiles to keep busy.
      const device = openEmulatorGpu({
        precision,
        multiprocessors: 11,
        // A capture would run each new step twice more.
        capture: effort({ quick: "off", thorough: "on" }),
        seesSnapshots: false,
      });
      const [eager, compiled, plain] = (["eager", "compiled", "compiled with eager GEMMs"] as const).map(
        (variant) => train(device, variant),
      );
      // GELU's input is kept for its gradient; the gradient's input is not.
      assert.deepEqual(compiled!.finished, [true, false]);
      assert.equal(compiled!.summed, 1, "the bias gradient's partials are computed with GELU's gradient");
      assert.deepEqual(compiled!.together, [2]);
      assert.deepEqual(compiled!.turned, precision === "tf32" ? ["transpose"] : []);
      for (const [index, loss] of eager!.losses.entries())
        assert.ok(Math.abs(compiled!.losses[index]! - loss) <= 2e-3 * loss, `step ${index}`);
      const { planned: _, ...rest } = plain!;
      assert.deepEqual(rest, { losses: eager!.losses, together: [], finished: [], summed: 0, turned: [] });
    });
  }

  for (const precision of precisions) {
    test(`has the same GEMMs on side streams in ${precision}, where the late passes run again for them`, () => {
      withNullGpu(precision, (device) => {
        // The null GPU has more multiprocessors to keep busy.
        const { planned } = train(device, "compiled in place", 8 * hidden);
        const streamed = assignStreams(device.runtime, planned!, { streams: 2, lag: 1 });
        assert.ok(streamed && planned);
        assert.ok(streamed.schedule.calls.some(({ stream }) => stream > 0));
        const kindsOf = ({ schedule }: PlannedStep): string[] =>
          schedule.calls.map(({ call }) => call.work.kind).filter((kind) => /gemm/.test(kind));
        assert.deepEqual(kindsOf(streamed).sort(), kindsOf(planned).sort());
        assert.equal(kindsOf(streamed).filter((kind) => kind === "gemm-epilogue").length, 2);
      });
    });
  }
});
