/**
 * A sample of the kernels that the ops, the optimizers and the application's model print compiles without a warning. No GPU is
 * needed for that, only NVIDIA's compiler. `cuda-kernels-compile.long.test.ts` compiles all of them for every generation of GPUs.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaKernel } from "../src/kernels/codegen/cuda/cuda-function.js";
import { noCompiler } from "./support/nvcc.js";
import { compileBatch } from "./support/nvcc-batch.js";
import { printKernels } from "./support/printed-kernels.js";

/** One of so many printed kernels is compiled. */
const sampleStep = 14;

describe("under nvcc", { skip: noCompiler() }, () => {
  test("a sample of the printed kernels compiles without a warning", async (t) => {
    const kernels = printKernels();
    assert.ok(kernels.length > 800, `${kernels.length} kernels were printed`);
    const sample = kernels.filter(({ cuda }, index) => index % sampleStep === 0 && !cuda?.requiredCapability);
    assert.ok(sample.length > 50, `${sample.length} kernels are compiled`);
    t.diagnostic(`${sample.length} of ${kernels.length} kernels, for sm_90`);
    await compileBatch(sample, ["sm_90"]);
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
