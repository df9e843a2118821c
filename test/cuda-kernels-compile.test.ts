/**
 * Every kernel that the ops, the optimizers and the application's model print compiles for every generation of GPUs, and
 * without a warning. No GPU is needed for that, only NVIDIA's compiler.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaKernel } from "../src/kernels/codegen/cuda/cuda-function.js";
import { noCompiler } from "./support/nvcc.js";
import { compileBatch } from "./support/nvcc-batch.js";
import { printKernels } from "./support/printed-kernels.js";

/** Ampere, Hopper, Blackwell in the data centre and Blackwell on the desk. */
const architectures = ["sm_80", "sm_90", "sm_100", "sm_121"] as const;

describe("under nvcc", { skip: noCompiler() }, () => {
  test("all printed kernels compile for four architectures without a warning", async (t) => {
    const kernels = printKernels();
    assert.ok(kernels.length > 800, `${kernels.length} kernels were printed`);
    t.diagnostic(`${kernels.length} kernels × ${architectures.join(", ")}`);
    await compileBatch(kernels, architectures);
  });

  const sound = { parameters: { to: "out" }, elements: "float", threads: 32 } as const;

  test("red proof: a kernel with a wrong type and one with an unused variable are found, by name", async () => {
    const wrongType = cudaKernel({ ...sound, name: "wrongly typed", body: '  to[0] = "text";' });
    const unused = cudaKernel({ ...sound, name: "careless", body: "  unsigned unused;\n  to[0] = 1.0f;" });
    await assert.rejects(compileBatch([wrongType], ["sm_90"]), /wrongly typed.*error: a value of type/s);
    await assert.rejects(compileBatch([unused], ["sm_90"]), /careless.*"unused" was declared but never/s);
  });

  test("red proof: a kernel that the assembler can't place is found", async () => {
    const huge = cudaKernel({
      ...sound,
      name: "too large",
      body: "  __shared__ float room[20000];\n  room[threadIdx.x] = 1.0f;\n  __syncthreads();\n  to[0] = room[1];",
    });
    await assert.rejects(compileBatch([huge], ["sm_90"]), /too much shared data|shared/);
  });
});
