/** The random kernels in CUDA C++. */

import type { CudaCode } from "../../driver/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { counter } from "../codegen/cuda/intrinsics/philox.js";
import { stateBytes } from "./random-state.js";

const wordBytes = 4;

/** One thread of the grid increments the counter, so that a launch counts once, with any number of blocks. */
export const reserveDrawCode: CudaCode = cudaKernel({
  name: "reserveDraw",
  parameters: { draw: "out", state: "inout" },
  elements: "unsigned",
  threads: 32,
  body: `
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  for (int i = 0; i < ${stateBytes / wordBytes}; i++) draw[i] = state[i];
  const unsigned low = state[${counter}] + 1;
  state[${counter}] = low;
  if (low == 0) state[${counter + 1}] += 1;`,
}).cuda;
