/** The random kernels in CUDA C++, with the same words as the WebAssembly kernels. */

import type { CudaCode } from "../../driver/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { keySteps, multipliers, rounds } from "./philox.js";
import { stateBytes, stateOffsets } from "./random-state.js";

const wordBytes = 4;
/** The word offsets of the low words of the seed and the counter; the high words follow. */
export const seed = stateOffsets.seed / wordBytes;
export const counter = stateOffsets.counter / wordBytes;

/** `philox(counter words 0 to 3, key words 0 and 1)`. */
export const philoxFunction = `
static __device__ __forceinline__ uint4 philox(unsigned x0, unsigned x1, unsigned x2, unsigned x3, unsigned key0, unsigned key1) {
  for (int round = 0; round < ${rounds}; round++) {
    // One instruction each.
    const unsigned long long product0 = (unsigned long long)x0 * ${multipliers[0]}u, product1 = (unsigned long long)x2 * ${multipliers[1]}u;
    x0 = (unsigned)(product1 >> 32) ^ x1 ^ key0;
    x1 = (unsigned)product1;
    x2 = (unsigned)(product0 >> 32) ^ x3 ^ key1;
    x3 = (unsigned)product0;
    key0 += ${keySteps[0]}u;
    key1 += ${keySteps[1]}u;
  }
  return {x0, x1, x2, x3};
}`;

/** Each thread generates four words, stored together if the array is 16-byte aligned. */
export function randomBitsCode(wordsPerBlock: number): CudaCode {
  const threads = wordsPerBlock / 4;
  return cudaKernel({
    name: "randomBits",
    parameters: { words: "out", state: "in", count: "u32" },
    elements: "unsigned",
    threads,
    declarations: philoxFunction,
    body: `
  const unsigned long long at = (blockIdx.x * ${threads}ull + threadIdx.x) * 4;
  if (at >= count) return;
  const uint4 four = philox((unsigned)(at / 4), 0, state[${counter}], state[${counter + 1}], state[${seed}], state[${seed + 1}]);
  if (((size_t)words & 15) == 0 && at + 4 <= count) {
    *reinterpret_cast<uint4*>(words + at) = four;
    return;
  }
  words[at] = four.x;
  if (at + 1 < count) words[at + 1] = four.y;
  if (at + 2 < count) words[at + 2] = four.z;
  if (at + 3 < count) words[at + 3] = four.w;`,
  }).cuda;
}

/** One thread of the grid increments the counter, so that a launch counts once, with any number of blocks. */
const increment = `
  const unsigned low = state[${counter}] + 1;
  state[${counter}] = low;
  if (low == 0) state[${counter + 1}] += 1;`;
const leaveToFirstThread = `
  if (blockIdx.x != 0 || threadIdx.x != 0) return;`;

export const advanceCode: CudaCode = cudaKernel({
  name: "advance",
  parameters: { state: "inout" },
  elements: "unsigned",
  threads: 32,
  body: leaveToFirstThread + increment,
}).cuda;

export const reserveDrawCode: CudaCode = cudaKernel({
  name: "reserveDraw",
  parameters: { draw: "out", state: "inout" },
  elements: "unsigned",
  threads: 32,
  body: `${leaveToFirstThread}
  for (int i = 0; i < ${stateBytes / wordBytes}; i++) draw[i] = state[i];${increment}`,
}).cuda;
