/** Random models of nn's layers are exported with a symbolic batch, and their files give their results for other batches. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { manualSeed, noGrad, type Tensor } from "holdfast";
import { openDevice } from "./support/devices.js";
import { makeFolder } from "./support/folders.js";
import { compareExport, interpreter } from "./support/onnx/compare.js";
import { findOnnxRuntime } from "./support/onnx/runtime.js";
import { RandomModel } from "./support/random-models/build.js";
import { anyModelProgram } from "./support/random-models/generate.js";
import type { ModelProgram } from "./support/random-models/program.js";
import { shapeOf, valuesOf } from "./support/random-models/run.js";

const device = openDevice({ threads: 1, memory: "1GiB" });
const folder = makeFolder();
const engines = [findOnnxRuntime() ?? interpreter];
const numRuns = 150;

let exported = 0;

async function check(program: ModelProgram): Promise<void> {
  manualSeed(program.seed);
  const model = new RandomModel(program.steps).to(device).eval();
  const feed = (batch: number): Record<string, Tensor> =>
    Object.fromEntries(
      program.inputs.map((input, index) => {
        const values = valuesOf(program, input, index, batch);
        const dtype = input.dtype === "float" ? "f32" : input.dtype;
        return [input.name, device.fromHost(values, shapeOf(input, batch), dtype)];
      }),
    );
  const batched = program.inputs.filter(({ hasBatch = true }) => hasBatch);
  const [{ name: first = "" } = {}] = program.inputs;
  const run = (...given: Tensor[]): Tensor => {
    const inputs = new Map(program.inputs.map(({ name }, index) => [name, given[index]!]));
    return model.forward(inputs.get(first)!, inputs, () => undefined);
  };
  const scale = device.step(() =>
    noGrad(() =>
      run(...Object.values(feed(3)))
        .abs()
        .amax()
        .item(),
    ),
  );
  if (!Number.isFinite(scale)) return;
  const dynamicAxes = Object.fromEntries(batched.map(({ name }) => [name, { 0: "batch" }]));
  const feeds = [feed(3), feed(5)] as const;
  const options = { dynamicAxes };
  await compareExport(
    device,
    folder,
    { name: "random", model: run, feeds, options, tolerance: 5e-5 },
    engines,
  );
  exported++;
}

test("random models are exported, and give their results for two batches", async (t) => {
  const property = fc.asyncProperty(anyModelProgram({ hasEvents: false, dtypes: ["f32"] }), check);
  await fc.assert(property, { seed: 7, numRuns, endOnFailure: true });
  t.diagnostic(`${exported} exported; others have infinite results`);
  assert.ok(exported > 0.9 * numRuns);
});
