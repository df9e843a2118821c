/**
 * The basic kernels in CUDA C++, with the same blocks of 4096 elements and the same order of additions as in
 * WebAssembly.
 */

import type { CudaCode } from "../driver.js";

const threads = 256;

/** The threads of a block stride over its elements; `statement` handles the element at `at`. */
function elementwise(name: string, parameters: string, statement: string): CudaCode {
  const entry = `hf_basic_${name}`;
  const code = `extern "C" __global__ void __launch_bounds__(${threads}) ${entry}(${parameters}, unsigned elements) {
  const unsigned long long begin = (unsigned long long)blockIdx.x * 4096u + threadIdx.x;
  for (unsigned turn = 0; turn < ${4096 / threads}u; turn++) {
    const unsigned long long at = begin + turn * ${threads}u;
    if (at < elements) ${statement};
  }
}
`;
  return { code, entry, threads };
}

/** Four threads are the four lanes; thread 0 adds the remaining elements one by one. */
const sum: CudaCode = {
  entry: "hf_basic_sum",
  threads: 32,
  code: `extern "C" __global__ void __launch_bounds__(32) hf_basic_sum(const float* from, float* out, unsigned elements) {
  const unsigned long long begin = (unsigned long long)blockIdx.x * 4096u;
  const unsigned long long left = begin < elements ? elements - begin : 0u;
  const unsigned count = left < 4096u ? (unsigned)left : 4096u;
  const unsigned whole = count - count % 4u;
  float lane = 0.0f;
  if (threadIdx.x < 4u)
    for (unsigned at = threadIdx.x; at < whole; at += 4u) lane += from[begin + at];
  const float pair = lane + __shfl_down_sync(0xffffffffu, lane, 1u);
  float total = pair + __shfl_down_sync(0xffffffffu, pair, 2u);
  if (threadIdx.x > 0u) return;
  for (unsigned at = whole; at < count; at++) total += from[begin + at];
  out[blockIdx.x] = total;
}
`,
};

export const basicKernelCode = {
  fill: elementwise("fill", "float* out, float value", "out[at] = value"),
  copy: elementwise("copy", "const float* from, float* out", "out[at] = from[at]"),
  add: elementwise("add", "const float* a, const float* b, float* out", "out[at] = a[at] + b[at]"),
  scale: elementwise(
    "scale",
    "const float* from, float* out, const float* factor",
    "out[at] = from[at] * factor[0]",
  ),
  sum,
} as const satisfies Record<string, CudaCode>;
