/**
 * This version reads, shows, queries and resumes run folders of 0.1.0. The folders are in
 * test/fixtures/run-0.1.0.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { crossasset } from "holdfast";
import { phases } from "../src/compile/pipeline.js";
import { viewAsText } from "../src/inspect/index.js";
import { healthOf, readInspection, readRun, readSteps } from "../src/train/index.js";
import { openDevice } from "./support/devices.js";
import { unpackRun } from "./support/kept-run.js";
import { testDevice } from "./support/test-device.js";

const onCpu = { skip: testDevice !== "cpu" && "the runs were made on a CPU" };

/** Later versions may round differently: two optimizer steps keep that difference small. */
function near(actual: number, expected: number): void {
  assert.ok(Math.abs(actual - expected) < 1e-3 * Math.abs(expected), `${actual} instead of ${expected}`);
}

interface KeptLine {
  readonly step: number;
  readonly loss?: number;
  readonly test?: { readonly loss: number; readonly accuracy: number };
}

/** Phases that 0.1.0 did not have. */
const laterPhases: ReadonlySet<string> = new Set([
  "batchGemms",
  "rowTiling",
  "rowPadding",
  "pretransposeOperands",
  "convolutionEpilogues",
  "recomputeActivations",
  "compactGradients",
  "mergeDraws",
  "groupScatters",
  "tf32Operands",
  "weightCopies",
  "recomputeInReaders",
  "recomputeCheapValues",
  "gemmSums",
  "gemmPrologues",
]);

describe("a run that 0.1.0 finished", () => {
  const run = unpackRun("0.1.0", "finished");

  test("is read with its status, metrics and results, and without a warning", () => {
    const { run: record, status, metrics, results, messages } = readRun(run);
    assert.deepEqual(messages, []);
    assert.deepEqual([record?.holdfast, record?.settings["batch"]], ["0.1.0", 15]);
    assert.deepEqual([status?.state, status?.step, status?.of], ["finished", 10, 10]);
    assert.equal(metrics.length, 6);
    assert.equal(results?.["wf_mean"], (0.19583333333333333 + 0.3541666666666667) / 2);
    assert.equal(crossasset.stateOfRun(run), "finished");
  });

  test("is shown: steps, plans, memory, the text page and its health", () => {
    const { plans, memory, incidents, messages } = readInspection(run);
    assert.deepEqual([incidents, messages], [[], []]);
    assert.ok(plans.length >= 2 && memory.length > 0);
    const calls = plans.flatMap((plan) => plan.calls);
    assert.deepEqual([...new Set(calls.map(({ kind }) => kind))].sort(), [
      "attention",
      "column",
      "gemm",
      "row",
    ]);
    assert.deepEqual([...new Set(calls.map(({ phase }) => phase))], ["forward", "backward", "update"]);
    assert.ok(calls.every(({ stream }) => stream >= 0));
    assert.deepEqual(
      plans[0]?.stages.map(({ name }) => name),
      ["trace", ...Object.keys(phases).filter((name) => !laterPhases.has(name))],
    );
    const { step, loss } = readSteps(join(run, "steps.bin"));
    assert.deepEqual(
      [...step],
      Array.from({ length: 10 }, (_, index) => index + 1),
    );
    assert.ok(loss.every((value) => value > 0));
    const text = viewAsText(run).print();
    assert.match(text, /finished/);
    assert.match(text, /10 of 10/);
    const { state, exitCode } = healthOf(run);
    assert.deepEqual([state, exitCode], ["finished", 0]);
  });
});

describe("a run of 0.1.0 that was stopped", onCpu, () => {
  const run = unpackRun("0.1.0", "stopped");
  const bars = crossasset.generateBars({ bars: 12_000, seed: 42 });
  // A capture would run each new step twice more.
  const device = openDevice({ capture: "off", threads: 1 });

  test("is healthy, and answers questions about bars", () => {
    const { state, exitCode } = healthOf(run);
    assert.deepEqual([state, exitCode], ["stopped", 0]);
    assert.match(viewAsText(run).print(), /stopped/);
    const model = crossasset.openTrainedModel(device, run);
    assert.equal(model.step, 8);
    const { samples, overall } = model.evaluate(bars, { stride: 1800 });
    assert.equal(samples, 3);
    assert.ok(overall.loss > 0 && overall.accuracy > 0);
    const predictions: crossasset.Prediction[] = [];
    const sampleCount = model.predict(bars, (prediction) => predictions.push(prediction), { stride: 1800 });
    assert.ok(sampleCount >= samples);
    assert.equal(predictions.length, sampleCount * 12);
    for (const { probabilities } of predictions)
      near(
        probabilities.reduce((sum, value) => sum + value),
        1,
      );
  });

  test("is resumed, and ends like in 0.1.0", async () => {
    const settings = { ...crossasset.defaultSettings, folds: 2, epochs: 2, batch: 15 };
    const request = { ...settings, generate: 12_000, precision: "f32" };
    const job = crossasset.openJobRun({
      ...{ path: run, settings: request, device: device.runtime.device.name, recordedDevice: device },
    });
    assert.deepEqual([job.resumed?.step, job.resumed?.fold], [8, 1]);
    const results = await crossasset.runJob({
      ...{ device, settings, bars, source: "the generator", cacheFolder: "off", run: job },
      listen: () => undefined,
    });
    job.end(results, 0);

    const wholeRun = unpackRun("0.1.0", "finished");
    const linesOf = (path: string) => readRun(path).metrics as unknown as readonly KeptLine[];
    const [whole, resumed] = [linesOf(wholeRun), linesOf(run)];
    assert.deepEqual(
      resumed.map(({ step }) => step),
      whole.map(({ step }) => step),
    );
    for (const [index, { loss, test: tested }] of whole.entries()) {
      if (loss !== undefined) near(resumed[index]?.loss ?? 0, loss);
      if (tested) near(resumed[index]?.test?.loss ?? 0, tested.loss);
    }
    const steps = readSteps(join(run, "steps.bin"));
    const wholeSteps = readSteps(join(wholeRun, "steps.bin"));
    assert.deepEqual([...steps.step], [...wholeSteps.step]);
    for (const [index, loss] of wholeSteps.loss.entries()) near(steps.loss[index] ?? 0, loss);
    assert.equal(JSON.parse(readFileSync(join(run, "status.json"), "utf8")).state, "finished");
    assert.equal(crossasset.stateOfRun(run), "finished");
  });
});
