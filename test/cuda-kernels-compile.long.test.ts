/**
 * Every kernel that the ops, the optimizers and the application's model generate compiles without a warning
 * for every generation of GPUs. This needs no GPU, only NVIDIA's compiler.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { printKernels } from "./support/generated-kernels.js";
import { noCompiler } from "./support/nvcc.js";
import { compileBatch } from "./support/nvcc-batch.js";

/** Ampere, Hopper, Blackwell in data centres and Blackwell on desktops. */
const architectures = ["sm_80", "sm_90", "sm_100", "sm_121"] as const;

test("all generated kernels compile for four architectures without a warning", {
  skip: noCompiler(),
}, async (t) => {
  const kernels = printKernels();
  assert.ok(kernels.length > 800, `${kernels.length} kernels were generated`);
  t.diagnostic(`${kernels.length} kernels × ${architectures.join(", ")}`);
  await compileBatch(kernels, architectures);
});
