/** The random kernels in CUDA C++, with the same words as the WebAssembly kernels. */

import type { CudaCode } from "../../driver/index.js";
import { cudaKernel } from "../codegen/cuda/cuda-function.js";
import { keySteps, multipliers, rounds } from "./philox.js";
import { stateOffsets } from "./random-state.js";

const wordBytes = 4;
/** The word offsets of the low words of the seed and the counter; the high words follow. */
const seed = stateOffsets.seed / wordBytes;
const counter = stateOffsets.counter / wordBytes;

/** Each thread generates four words, stored together if the array is 16-byte aligned. */
export function randomBitsCode(wordsPerBlock: number): CudaCode {
  const threads = wordsPerBlock / 4;
  return cudaKernel({
    name: "randomBits",
    parameters: { words: "out", state: "in", count: "u32" },
    elements: "unsigned",
    threads,
    body: `
  const unsigned long long at = (blockIdx.x * ${threads}ull + threadIdx.x) * 4;
  if (at >= count) return;
  unsigned x0 = (unsigned)(at / 4), x1 = 0, x2 = state[${counter}], x3 = state[${counter + 1}];
  unsigned key0 = state[${seed}], key1 = state[${seed + 1}];
  for (int round = 0; round < ${rounds}; round++) {
    const unsigned high0 = __umulhi(x0, ${multipliers[0]}u), low0 = x0 * ${multipliers[0]}u;
    const unsigned high1 = __umulhi(x2, ${multipliers[1]}u), low1 = x2 * ${multipliers[1]}u;
    x0 = high1 ^ x1 ^ key0;
    x1 = low1;
    x2 = high0 ^ x3 ^ key1;
    x3 = low0;
    key0 += ${keySteps[0]}u;
    key1 += ${keySteps[1]}u;
  }
  const uint4 four = {x0, x1, x2, x3};
  if (((size_t)words & 15) == 0 && at + 4 <= count) {
    *reinterpret_cast<uint4*>(words + at) = four;
    return;
  }
  words[at] = x0;
  if (at + 1 < count) words[at + 1] = x1;
  if (at + 2 < count) words[at + 2] = x2;
  if (at + 3 < count) words[at + 3] = x3;`,
  }).cuda;
}

/** One thread of the grid increments the counter, so that a launch counts once, with any number of blocks. */
export const advanceCode: CudaCode = cudaKernel({
  name: "advance",
  parameters: { state: "inout" },
  elements: "unsigned",
  threads: 32,
  body: `
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  const unsigned low = state[${counter}] + 1;
  state[${counter}] = low;
  if (low == 0) state[${counter + 1}] += 1;`,
}).cuda;
