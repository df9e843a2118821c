/**
 * A sample of the kernels that the ops, the optimizers and the application's model generate compiles without
 * a warning. This needs no GPU, only NVIDIA's compiler. `cuda-kernels-compile.long.test.ts` compiles all of
 * them for every generation of GPUs.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaKernel } from "../src/kernels/codegen/cuda/cuda-function.js";
import { printKernels } from "./support/generated-kernels.js";
import { noCompiler } from "./support/nvcc.js";
import { compileBatch } from "./support/nvcc-batch.js";

/** One kernel out of this many is compiled. */
const sampleStep = 8;

describe("under nvcc", { skip: noCompiler() }, () => {
  test("a sample of the generated kernels compiles without a warning", async (t) => {
    const kernels = printKernels({ caseStep: 12 });
    assert.ok(kernels.length > 120, `${kernels.length} kernels were generated`);
    const sample = kernels.filter(({ cuda }, index) => index % sampleStep === 0 && !cuda?.requiredCapability);
    assert.ok(sample.length > 15, `${sample.length} kernels are compiled`);
    t.diagnostic(`${sample.length} of ${kernels.length} kernels, for sm_90`);
    await compileBatch(sample, ["sm_90"]);
  });

  const sound = { parameters: { to: "out" }, elements: "float", threads: 32 } as const;

  test("red proof: a kernel with a wrong type and one with an unused variable are found, by name", async () => {
    const wrongType = cudaKernel({ ...sound, name: "wrongly typed", body: '  to[0] = "text";' });
    const unused = cudaKernel({ ...sound, name: "careless", body: "  unsigned unused;\n  to[0] = 1.0f;" });
    const right = cudaKernel({ ...sound, name: "right", body: "  to[0] = 1.0f;" });
    // Of three kernels, the first and the last are compiled together.
    await assert.rejects(compileBatch([unused, right, wrongType], ["sm_90"]), ({ message }: Error) => {
      assert.match(message, /careless.*"unused" was declared but never/s);
      assert.match(message, /wrongly typed.*error: a value of type/s);
      return true;
    });
  });

  test("red proof: a kernel that the assembler can't fit is found", async () => {
    const huge = cudaKernel({
      ...sound,
      name: "too large",
      body: "  __shared__ float buffer[20000];\n  buffer[threadIdx.x] = 1.0f;\n  __syncthreads();\n  to[0] = buffer[1];",
    });
    await assert.rejects(compileBatch([huge], ["sm_90"]), /too much shared data|shared/);
  });
});
