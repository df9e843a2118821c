/** Decode steps in bf16 on the emulated GPU: the kernels of few rows and of cached attention give the logits of the CPU. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, manualSeed, modelFromConfig, models, noGrad, type Tensor, tensor } from "holdfast";
import { openCpuDevice } from "./support/devices.js";
import { emulatorGpuMissing, openEmulatorGpu } from "./support/emulator-gpu.js";

const config = {
  ...{ model_type: "qwen2", vocab_size: 96, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 32, initializer_range: 0.2 },
};

/** The logits of three tokens of two texts, one after the other; and what the compiled step says of itself. */
function decode(device: Device): { readonly logits: readonly number[]; readonly report: string } {
  manualSeed(3);
  const model = modelFromConfig(config).to(device, "bf16").eval();
  assert.ok(model instanceof models.LanguageModel);
  const cache = model.newCache({ batch: 2, maxLength: 16 }).to(device, "bf16");
  const step = device.compile((ids: Tensor, positions: Tensor) =>
    noGrad(() => model.forward(ids, { positions, cache, columns: 16 })),
  );
  const ints = (values: number[]) => tensor(values, { dtype: "i32", device }).reshape([2, 1]);
  const logits = [0, 1, 2].flatMap((at) => {
    const result = step(ints([5 + at, 60 - at]), ints([at, at]));
    return Array.from(result.to("f32").dataSync());
  });
  const report = step.explain();
  step.close();
  return { logits, report };
}

test("a decode step on the GPU has the logits of the CPU", { skip: emulatorGpuMissing }, () => {
  const expected = decode(openCpuDevice()).logits;
  const { logits, report } = decode(openEmulatorGpu({ precision: "bf16" }));
  assert.match(report, /cachedAttention/);
  assert.match(report, /2 × gemm NT bf16/);
  const largest = Math.max(...expected.map(Math.abs));
  const worst = Math.max(...expected.map((value, at) => Math.abs(value - logits[at]!)));
  assert.ok(worst < 0.03 * largest, `logits differ by ${worst}; the largest is ${largest}`);
});
