/** Folders that savePretrained writes are loaded by transformers, with the same logits. Needs a Python with transformers. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import test from "node:test";
import { loadPretrained, noGrad, savePretrained } from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { makeFolder } from "./support/folders.js";
import { callsOf, modelOf, readModelCases } from "./support/model-cases.js";
import { repositoryRoot } from "./support/repository.js";

const python = process.env["PYTHON"] ?? "python3";
const script = join(repositoryRoot, "test/oracle/transformers_models.py");
const hasTransformers = spawnSync(python, ["-c", "import transformers, torch, safetensors"]).status === 0;

test("transformers loads what savePretrained writes, whole, in shards and in bf16, with the same logits", {
  skip: !hasTransformers && `${python} has no transformers; PYTHON names another Python`,
}, () => {
  const device = openStrictDevice();
  const { inputs, cases } = readModelCases("transformers.json");
  const root = makeFolder();
  const written = cases.map((given, index) => {
    const folder = join(root, `case-${index}`);
    savePretrained(modelOf(device, given, index % 3 === 2 ? "bf16" : "f32"), folder, {
      ...(index % 3 === 1 && { maxShardBytes: 4000 }),
    });
    const model = loadPretrained(folder, { device });
    const { logits } = callsOf(model, inputs);
    return { name: given.name, folder, logits: device.step(() => noGrad(() => logits().dataSync())) };
  });
  const folders = written.map(({ folder }) => folder);
  const { status, stdout, stderr } = spawnSync(python, [script, "logits", ...folders], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
  for (const [index, values] of (JSON.parse(stdout) as number[][]).entries()) {
    const { name, logits } = written[index]!;
    assert.equal(values.length, logits.length, name);
    for (const [at, value] of values.entries())
      assert.ok(Math.abs(value - logits[at]!) < 2e-5, `${name} [${at}]: ${value} is not ${logits[at]}`);
  }
});
