/** The metrics page: it has Prometheus' format and the values of the run's status. */

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readExposition } from "../../test/support/exposition-format.js";
import { makeFolder } from "../../test/support/folders.js";
import type { RunFigures } from "../records/index.js";
import { readMetricsPage } from "./metrics-page.js";
import { RunFolder } from "./run-folder.js";

const figures: RunFigures = {
  ...{ loss: 0.987_654_321, samples: 123_456, samplesPerSecond: 12_345.6, skipped: 2 },
  ...{ tokensPerSecond: 98_765.4, perplexity: 12.5 },
  ...{ usedBytes: 3 * 2 ** 30, budgetBytes: 1.5 * 2 ** 40 },
};

function begin(device = "a CPU"): { readonly folder: RunFolder; readonly path: string } {
  const path = makeFolder();
  return { path, folder: RunFolder.create(path, { settings: {}, device, heartbeatMs: 0 }) };
}

function read(path: string) {
  return readExposition(readMetricsPage(path) ?? assert.fail("there is no page"));
}

test("every figure of the status is on the page, with its unit in its name and its exact value", () => {
  const { folder, path } = begin();
  folder.noteProgress({ step: 321, of: 1000, epoch: 1, fold: 2, figures });
  const status = JSON.parse(readFileSync(join(path, "status.json"), "utf8"));
  const values = Object.fromEntries([...read(path)].map(([name, { value }]) => [name, value]));
  assert.deepEqual(values, {
    holdfast_run_info: 1,
    holdfast_step: status.step,
    holdfast_steps_planned: status.of,
    holdfast_epoch: status.epoch,
    holdfast_fold: status.fold,
    holdfast_loss: status.figures.loss,
    holdfast_samples_total: status.figures.samples,
    holdfast_samples_per_second: status.figures.samplesPerSecond,
    holdfast_tokens_per_second: status.figures.tokensPerSecond,
    holdfast_perplexity: status.figures.perplexity,
    holdfast_skipped_steps_total: status.figures.skipped,
    holdfast_memory_committed_bytes: status.figures.usedBytes,
    holdfast_memory_budget_bytes: status.figures.budgetBytes,
    holdfast_heartbeat_timestamp_seconds: Date.parse(status.updated) / 1000,
    holdfast_progress_timestamp_seconds: Date.parse(status.progressed) / 1000,
  });
  assert.deepEqual([values["holdfast_step"], values["holdfast_loss"]], [321, 0.987_654_321]);
  folder.close();
});

test("the run's description is in labels, with any device name", () => {
  const device = 'a "card" \\ of\ntwo lines';
  const { folder, path } = begin(device);
  folder.enterPhase("compiling");
  const labels = () => read(path).get("holdfast_run_info")?.labels;
  const { holdfast, node } = folder.run;
  assert.deepEqual(labels(), { state: "running", phase: "compiling", device, holdfast, node });
  folder.end({ state: "failed", exitCode: 1 });
  assert.equal(labels()?.["state"], "failed");
});

test("losses that are not finite are exported unchanged", () => {
  const { folder, path } = begin();
  for (const loss of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 1e-30, 2 ** 80]) {
    folder.noteProgress({ step: 1, figures: { loss } });
    assert.equal(read(path).get("holdfast_loss")?.value, loss);
  }
  folder.close();
});

test("the latest checkpoint's time is exported if there is one", () => {
  const { folder, path } = begin();
  assert.equal(read(path).has("holdfast_checkpoint_timestamp_seconds"), false);
  mkdirSync(join(path, "checkpoints"));
  for (const step of [9, 10]) {
    const file = join(path, "checkpoints", `step-${String(step).padStart(9, "0")}.safetensors`);
    writeFileSync(file, "");
    utimesSync(file, 1_700_000_000 + step, 1_700_000_000 + step);
  }
  assert.equal(read(path).get("holdfast_checkpoint_timestamp_seconds")?.value, 1_700_000_010);
  folder.close();
});

test("a folder without a run has no page", () => {
  assert.equal(readMetricsPage(makeFolder()), undefined);
});

test("red proof: the tests' reader rejects other formats", () => {
  const good = '# HELP a_total Some.\n# TYPE a_total counter\na_total{b="c\\"d"} 1\n';
  assert.equal(readExposition(good).get("a_total")?.labels["b"], 'c"d');
  const wrong = [
    good.slice(0, -1),
    good.replace("# TYPE a_total counter\n", ""),
    good.replaceAll("a_total", "a"),
    good.replaceAll("a_total", "a-b_total"),
    good.replace("TYPE a_total counter", "TYPE a_total number"),
    good.replace("} 1", "} one"),
    good.replace("} 1", "} Infinity"),
    good.replace("} 1", ",} 1"),
    good.replace('\\"', '"'),
    good + good,
    `${good}\n`,
  ];
  for (const text of wrong) assert.throws(() => readExposition(text), JSON.stringify(text));
});
