/**
 * Every kernel that the ops, the optimizers and the application's model generate compiles without a warning
 * for every generation of GPUs. This needs no GPU, only NVIDIA's compiler.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { printKernels } from "./support/generated-kernels.js";
import { gpuGenerations } from "./support/gpu-generations.js";
import { noCompiler } from "./support/nvcc.js";
import { compileBatch } from "./support/nvcc-batch.js";

const architectures = gpuGenerations.map(({ capability }) => `sm_${capability.replace(".", "")}`);

test("all generated kernels compile for every architecture without a warning", {
  skip: noCompiler(),
}, async (t) => {
  const kernels = printKernels();
  assert.ok(kernels.length > 800, `${kernels.length} kernels were generated`);
  t.diagnostic(`${kernels.length} kernels × ${architectures.join(", ")}`);
  await compileBatch(kernels, architectures);
});
