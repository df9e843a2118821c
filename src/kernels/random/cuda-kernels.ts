/** The random kernels in CUDA C++. */

import type { CudaCode } from "../../driver/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { counter, seed } from "../codegen/cuda/intrinsics/philox.js";
import { stateBytes } from "./random-state.js";

const wordBytes = 4;

/** One warp of the grid, so that a launch counts once, with any number of blocks. */
export const reserveDrawCode: CudaCode = cudaKernel({
  name: "reserveDraw",
  parameters: { draws: "out", state: "inout", count: "u32" },
  elements: "unsigned",
  threads: 32,
  body: `
  if (blockIdx.x != 0) return;
  const unsigned long long first = (unsigned long long)state[${counter + 1}] << 32 | state[${counter}];
  for (unsigned i = threadIdx.x; i < count; i += 32) {
    unsigned* const draw = draws + ${stateBytes / wordBytes} * i;
    draw[${seed}] = state[${seed}];
    draw[${seed + 1}] = state[${seed + 1}];
    draw[${counter}] = (unsigned)(first + i);
    draw[${counter + 1}] = (unsigned)((first + i) >> 32);
  }
  __syncwarp();
  if (threadIdx.x != 0) return;
  state[${counter}] = (unsigned)(first + count);
  state[${counter + 1}] = (unsigned)((first + count) >> 32);`,
}).cuda;
