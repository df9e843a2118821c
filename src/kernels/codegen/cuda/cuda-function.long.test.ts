/** Every hand-written CUDA kernel, in every dtype, under nvcc. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { handwrittenKernels } from "../../../../test/support/handwritten-kernels.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";

describe("all CUDA code under nvcc", { skip: noCompiler() }, () => {
  for (const [architecture, some] of [
    ["sm_80", handwrittenKernels],
    ["sm_121", handwrittenKernels.filter(({ name }) => name.endsWith("f32"))],
  ] as const) {
    test(`compiles for ${architecture} without a warning, and no kernel needs local memory`, () => {
      for (const [index, { stackBytes, spillBytes }] of compileWithNvcc(some, architecture).entries()) {
        assert.deepEqual({ stackBytes, spillBytes }, { stackBytes: 0, spillBytes: 0 }, some[index]?.name);
      }
    });
  }
});
