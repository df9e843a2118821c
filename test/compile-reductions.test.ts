/**
 * A training step on a GPU with grouped gradients of biases and norms: it and every replay have the eager
 * step's bits.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import type { ColumnCall } from "../src/compile/program/program.js";
import { bytesOf } from "../src/compile/program/traffic.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { effort } from "./support/effort.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { withNullGpu } from "./support/null-gpu.js";
import { sameBytes } from "./support/same-bytes.js";

/** A row of a norm of this width takes more than a warp. */
const wide = 72;

/** The first call of a captured step replays it. */
const steps = effort({ quick: 1, thorough: 2 });

/** Steps of a model with two norms and three biases; the weights after them. */
function train(
  device: Device,
  prepare: (step: (x: Tensor) => Tensor) => (x: Tensor) => Tensor,
  width = wide,
): Float32Array[] {
  manualSeed(3);
  const layers = [
    ...[new nn.Linear(24, width), new nn.LayerNorm(width)],
    ...[new nn.Linear(width, 24), new nn.LayerNorm(24)],
  ];
  const model = new nn.Sequential(...layers, new nn.Linear(24, 3)).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const step = prepare((x) => {
    const loss = model.forward(x).square().mean();
    loss.backward();
    optim.clipGradNorm(model.parameters(), 1, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  // Enough rows for 1024 partials a column.
  const x = randn([1100, 24], { device });
  for (let round = 0; round < steps; round++) step(x);
  return [...model.parameters()].map((parameter) => parameter.dataSync() as Float32Array);
}

describe("a compiled step on a GPU", { skip: emulatorMissing }, () => {
  const open = (capture: "on" | "off"): Device =>
    emulatorMissing ? undefined! : openEmulatorGpu({ capture });
  const [device, uncaptured] = [open("on"), open("off")];

  const compile = (passes: PassSettings = {}, { on = device, width = wide } = {}) => {
    const recorded: { step?: object; text?: string } = {};
    const prepare = (step: (x: Tensor) => Tensor) => {
      const compiled = on.compile(step, { passes });
      recorded.step = compiled;
      return (x: Tensor) => {
        const loss = compiled(x);
        recorded.text = compiled.explain();
        return loss;
      };
    };
    const weights = train(on, prepare, width);
    const { schedule } = latestPlanOf(recorded.step!)!.planned;
    return { weights, calls: schedule.calls.map(({ call }) => call), text: recorded.text ?? "" };
  };

  const eager = emulatorMissing ? undefined! : train(device, (step) => step);
  const separateColumns = emulatorMissing
    ? undefined!
    : compile({ columnReductions: false }, { on: effort({ quick: uncaptured, thorough: device }) });

  test("groups the gradients of biases and norms, says so, and has the eager weights to the bit", () => {
    const passes = { columnReductions: false, groupReductions: false };
    const separate = effort({
      quick: () => withNullGpu("f32", (on) => compile(passes, { on })),
      thorough: () => compile(passes),
    })();
    for (const { weights } of effort({ quick: [separateColumns], thorough: [separateColumns, separate] })) {
      for (const [index, values] of eager.entries()) sameBytes(weights[index]!, values, `parameter ${index}`);
    }
    checkGroups(separateColumns, separate, wide);
  });

  const narrow = 40;
  // A norm of this width is grouped with all passes on.
  for (const width of effort({ quick: [], thorough: [narrow] })) {
    test(`groups them for a norm of width ${width} too, and has the eager weights to the bit`, () => {
      const narrowEager = train(device, (step) => step, width);
      const [grouped, separate] = [compile({}, { width }), compile({ groupReductions: false }, { width })];
      for (const { weights } of [grouped, separate]) {
        for (const [index, values] of narrowEager.entries())
          sameBytes(weights[index]!, values, `parameter ${index}`);
      }
      checkGroups(grouped, separate, width);
    });
  }

  type Compiled = ReturnType<typeof compile>;
  function checkGroups(grouped: Compiled, separate: Compiled, width: number): void {
    const [partial] = grouped.calls.flatMap(({ work }) => (work.kind === "partial-reduce" ? [work] : []));
    // The partials of 32 blocks: of the biases' gradients, and of the norms' two.
    assert.equal(partial!.scratch.size, 32 * 4 * (width + 24 + 2 * width + 2 * 24));
    const namesOf = (columns: readonly ColumnCall[]) => columns.map(({ kernel }) => kernel.name).sort();
    assert.deepEqual(namesOf(partial!.columns), [
      "layerNormAffineGradient",
      "layerNormAffineGradient",
      "sum",
      "sum",
    ]);
    // The partials are computed before independent calls and combined after those; for the last one, a single
    // block has all rows.
    const [joining] = grouped.calls.flatMap(({ work }) => (work.kind === "grouped-reduce" ? [work] : []));
    assert.deepEqual([namesOf(joining!.columns), joining!.partials], [["sum"], partial]);
    assert.ok(
      separate.calls.every(({ work }) => work.kind !== "grouped-reduce" && work.kind !== "partial-reduce"),
    );
    assert.equal(separate.calls.length, grouped.calls.length + 3);
    assert.match(grouped.text, / \d+ → +\d+ +splitReductions, on a GPU, grouped reductions start before/m);
    assert.match(
      grouped.text,
      / \d+ → +\d+ +groupReductions, on a GPU, column reductions are one launch:[^→]* gone;/m,
    );
    assert.match(grouped.text, /2 × sum|2 × layerNormAffineGra/);
  }

  test("computes the partials of a wide norm's gradients in the kernel of its input gradient, and has the eager weights to the bit", () => {
    const [within, separate] = [compile(), separateColumns];
    for (const { weights } of [within, separate]) {
      for (const [index, values] of eager.entries()) sameBytes(weights[index]!, values, `parameter ${index}`);
    }
    const columnOutputsOf = ({ calls }: typeof within): number[] =>
      calls.flatMap(({ work }) => {
        const outputs = work.kind === "row" ? work.kernel.outputs : [];
        const columnOutputs = outputs.filter(({ per }) => per === "column").length;
        return columnOutputs > 0 ? [columnOutputs] : [];
      });
    // One kernel has three column sums: for the gain, the shift, and the bias before the norm.
    assert.deepEqual([columnOutputsOf(within), columnOutputsOf(separate)], [[3], []]);
    assert.match(
      within.text,
      / \d+ → +\d+ +columnReductions, on a GPU, column sums start in kernels that already hold the/m,
    );
    const readBy = ({ calls }: typeof within): number =>
      calls
        .filter(({ work }) => work.kind === "partial-reduce")
        .reduce((sum, call) => sum + bytesOf(call).read, 0);
    assert.ok(readBy(within) < readBy(separate) / 2);
  });
});
