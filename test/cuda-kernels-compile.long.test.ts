/**
 * Every kernel that the ops, the optimizers and the application's model print compiles for every generation of GPUs, and
 * without a warning. No GPU is needed for that, only NVIDIA's compiler.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { noCompiler } from "./support/nvcc.js";
import { compileBatch } from "./support/nvcc-batch.js";
import { printKernels } from "./support/printed-kernels.js";

/** Ampere, Hopper, Blackwell in the data centre and Blackwell on the desk. */
const architectures = ["sm_80", "sm_90", "sm_100", "sm_121"] as const;

test("all printed kernels compile for four architectures without a warning", {
  skip: noCompiler(),
}, async (t) => {
  const kernels = printKernels();
  assert.ok(kernels.length > 800, `${kernels.length} kernels were printed`);
  t.diagnostic(`${kernels.length} kernels × ${architectures.join(", ")}`);
  await compileBatch(kernels, architectures);
});
