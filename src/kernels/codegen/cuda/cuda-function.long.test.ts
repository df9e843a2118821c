/** Every hand-written CUDA kernel, in every dtype, under nvcc. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { gpuGenerations } from "../../../../test/support/gpu-generations.js";
import { handwrittenKernels } from "../../../../test/support/handwritten-kernels.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";

describe("all CUDA code under nvcc", { skip: noCompiler() }, () => {
  for (const { capability } of gpuGenerations) {
    const architecture = `sm_${capability.replace(".", "")}`;
    test(`compiles for ${architecture} without a warning, and no kernel needs local memory`, () => {
      for (const [index, { stackBytes, spillBytes }] of compileWithNvcc(
        handwrittenKernels,
        architecture,
      ).entries()) {
        assert.deepEqual(
          { stackBytes, spillBytes },
          { stackBytes: 0, spillBytes: 0 },
          handwrittenKernels[index]?.name,
        );
      }
    });
  }
});
