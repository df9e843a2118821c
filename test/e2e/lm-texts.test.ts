/**
 * A tiny byte-level model learns a text on the CPU, its LoRA learns another one, and their ONNX files continue a prompt with the same tokens.
 * lm-texts.long.test.ts does the same with a few million parameters.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { startCommandHost } from "../support/command-host.js";
import { jobEnvironment } from "../support/crossasset-runs.js";
import { openCpuDevice } from "../support/devices.js";
import { makeFolder } from "../support/folders.js";
import { interpreter } from "../support/onnx/compare.js";
import { testDevice } from "../support/test-device.js";
import { requireSameTokens, trainOnTexts } from "../support/text-training.js";

const folder = makeFolder();
const host = startCommandHost(folder, jobEnvironment);
after(() => host.close());

test("a tiny model learns a text, its LoRA another one, and their ONNX files give the same tokens", {
  skip: testDevice !== "cpu" && "the command runs on the CPU",
}, async (t) => {
  const sizes = { hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1, num_attention_heads: 4 };
  const { base, lora } = await trainOnTexts(folder, host, {
    config: { model_type: "llama", ...sizes, num_key_value_heads: 2, max_position_embeddings: 64 },
    letters: 20_000,
    base: ["--lr", "6e-3", "--epochs", "1", "--batch", "4"],
    lora: ["--lr", "5e-3", "--epochs", "4", "--batch", "4"],
  });
  t.diagnostic(JSON.stringify({ base, lora }));
  assert.ok(base.before > 200, "as unsure as among all bytes");
  // The frequencies of letters alone have a perplexity of 22.
  assert.ok(base.after < 18, `${base.after}`);
  assert.ok(lora.after < 0.95 * lora.before, `${lora.before} ${lora.after}`);

  const device = openCpuDevice({ threads: 1 });
  // The interpreter takes a second for a token.
  for (const [model, tokens] of [
    ["base/model", 1],
    ["lora/model", 3],
  ] as const)
    await requireSameTokens(device, `${folder}/${model}`, { prompt: "We ", tokens, engine: interpreter });
});
