/**
 * A byte-level model of a few million parameters learns two novels on the CPU, its LoRA learns another text, and their ONNX files continue a
 * prompt with the same tokens in ONNX Runtime. It takes about seven minutes of processor time.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { startCommandHost } from "../support/command-host.js";
import { openCpuDevice } from "../support/devices.js";
import { makeFolder } from "../support/folders.js";
import { findOnnxRuntime, needsOnnxRuntime } from "../support/onnx/runtime.js";
import { testDevice } from "../support/test-device.js";
import { requireSameTokens, trainOnTexts } from "../support/text-training.js";

const folder = makeFolder();
const { PATH = "" } = process.env;
const host = startCommandHost(folder, { PATH, HOLDFAST_STALL_AFTER: "off" });
after(() => host.close());
const onCpu = { skip: testDevice !== "cpu" && "the command runs on the CPU" };

test("a model of millions of parameters learns two novels, and its LoRA another text", onCpu, async (t) => {
  const sizes = { hidden_size: 192, intermediate_size: 512, num_hidden_layers: 6, num_attention_heads: 6 };
  const { base, lora } = await trainOnTexts(folder, host, {
    config: { model_type: "llama", ...sizes, max_position_embeddings: 128 },
    letters: 1_200_000,
    base: ["--lr", "2e-3", "--steps", "400", "--batch", "16"],
    lora: ["--lr", "2e-3", "--epochs", "6", "--batch", "8"],
  });
  t.diagnostic(JSON.stringify({ base, lora }));
  assert.ok(base.parameters > 2_500_000);
  // An n-gram model of three letters has 6.59: see examples/data/README.md.
  assert.ok(base.after < 6, `${base.after}`);
  assert.ok(lora.after < 0.9 * lora.before, `${lora.before} ${lora.after}`);
});

const device = openCpuDevice({ memory: "1GiB" });

const prompt = "It is a truth universally ";

test("ONNX Runtime gives the same tokens for both ONNX files", {
  skip: onCpu.skip || needsOnnxRuntime.skip,
}, async (t) => {
  for (const model of ["base/model", "lora/model"]) {
    const engine = findOnnxRuntime();
    assert.ok(engine);
    t.diagnostic(await requireSameTokens(device, `${folder}/${model}`, { prompt, tokens: 60, engine }));
  }
});
