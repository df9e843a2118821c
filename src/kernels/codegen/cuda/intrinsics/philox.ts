/** Philox in CUDA C++, and the numbers of a draw, which a kernel computes where it needs them. */

import { keySteps, multipliers, rounds } from "../../../random/philox.js";
import { stateOffsets } from "../../../random/random-state.js";
import { device, type Intrinsic } from "./intrinsic.js";

const wordBytes = 4;
/** The word offsets of the low words of the seed and the counter in a random state; the high words follow. */
export const seed = stateOffsets.seed / wordBytes;
export const counter = stateOffsets.counter / wordBytes;

export const philoxIntrinsics = {
  /** `philox(counter words 0 to 3, key words 0 and 1)`. */
  philox: {
    code: `${device} uint4 philox(unsigned x0, unsigned x1, unsigned x2, unsigned x3, unsigned key0, unsigned key1) {
#pragma unroll
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
}`,
  },
  /** The eight numbers of a call. Number 8 · call + i is half i of its words, the low half of a word first. */
  drawEight: {
    needs: ["philox"],
    code: `${device} uint4 drawEight(const unsigned* state, long long call) {
  // Step memory is aligned: the seed and the counter are one load.
  const uint4 words = *reinterpret_cast<const uint4*>(state);
  return philox((unsigned)call, 0u, words.z, words.w, words.x, words.y);
}`,
  },
  /** Number i of the eight. */
  numberOf: {
    code: `${device} int numberOf(const uint4& words, unsigned i) {
  const unsigned low = i & 2u ? words.y : words.x, high = i & 2u ? words.w : words.z, word = i & 4u ? high : low;
  return (int)(i & 1u ? word >> 16 : word & 0xffffu);
}`,
  },
  /** The N numbers from `index` on, a multiple of N: they are of one call. */
  drawVec: {
    needs: ["Vec", "philox", "drawEight", "numberOf"],
    code: `template <int N>
${device} Vec<int, N> drawVec(const unsigned* state, long long index) {
  const uint4 words = drawEight(state, index >> 3);
  Vec<int, N> vec;
  #pragma unroll
  for (unsigned k = 0u; k < N; k++) vec.element[k] = numberOf(words, ((unsigned)index & 7u) / N * N + k);
  return vec;
}`,
  },
  /** N numbers in N / 2 registers: even ones are low halves. */
  Drawn: {
    code: `template <int N>
struct Drawn {
  unsigned words[N / 2];
};`,
  },
  /** Number k of them. */
  drawnNumber: {
    needs: ["Drawn"],
    code: `template <int N>
${device} int drawnNumber(const Drawn<N>& numbers, unsigned k) {
  const unsigned word = numbers.words[k / 2u];
  return (int)(k % 2u == 0u ? word & 0xffffu : word >> 16);
}`,
  },
  /** The N numbers from `index` on, a multiple of N: they are of one call. */
  drawNumbers: {
    needs: ["Drawn", "philox", "drawEight"],
    code: `template <int N>
${device} Drawn<N> drawNumbers(const unsigned* state, long long index) {
  const uint4 words = drawEight(state, index >> 3);
  if constexpr (N == 8) return {{words.x, words.y, words.z, words.w}};
  else return {{index & 4 ? words.z : words.x, index & 4 ? words.w : words.y}};
}`,
  },
  /**
   * The four numbers from each of two indices on. Neighbouring lanes have neighbouring indices, and so the other halves of the same two
   * calls: each makes one of them. All lanes of the warp take part.
   */
  drawPair: {
    needs: ["Drawn", "philox", "drawEight"],
    code: `${device} void drawPair(const unsigned* state, long long index0, long long index1, Drawn<4>& numbers0, Drawn<4>& numbers1) {
  const bool isSecond = index0 & 4;
  const uint4 words = drawEight(state, (isSecond ? index1 : index0) >> 3);
  const unsigned other0 = __shfl_xor_sync(0xffffffffu, isSecond ? words.x : words.z, 1);
  const unsigned other1 = __shfl_xor_sync(0xffffffffu, isSecond ? words.y : words.w, 1);
  numbers0 = {{isSecond ? other0 : words.x, isSecond ? other1 : words.y}};
  numbers1 = {{isSecond ? words.z : other0, isSecond ? words.w : other1}};
}`,
  },
  /** Four numbers, `stride` apart. Neighbours of one call share it. */
  drawStrided: {
    needs: ["Drawn", "philox", "drawEight", "numberOf"],
    code: `${device} Drawn<4> drawStrided(const unsigned* state, long long index, int stride) {
  unsigned numbers[4];
  long long call = -1;
  uint4 words = {};
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++, index += stride) {
    if (index >> 3 != call) words = drawEight(state, call = index >> 3);
    numbers[k] = (unsigned)numberOf(words, (unsigned)index & 7u);
  }
  return {{numbers[0] | numbers[1] << 16, numbers[2] | numbers[3] << 16}};
}`,
  },
} satisfies Record<string, Intrinsic>;
