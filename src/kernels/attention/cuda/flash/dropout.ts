/**
 * Dropout in the flash attention kernels. The words are those that `randomBits` draws for [batch, heads, rows, columns]: one Philox call
 * has the words of four neighbouring columns. A word has no memory: both directions draw it again from the saved random state.
 *
 * A lane has four probabilities of each block of 16 × 8, in two rows and two columns, so it needs words of four calls. If a row's words
 * start at a multiple of four, four lanes need the words of the same four calls: each lane makes one call per block, compares, and
 * exchanges bits for a whole tile by a shuffle or two.
 */

import type { Parameter } from "../../../../driver/index.js";
import { counter, philoxFunction, seed } from "../../../random/cuda-kernels.js";
import { scaleOfKept, thresholdOf } from "../../../random/index.js";
import type { FlashBackwardProblem, FlashProblem } from "../../problem.js";
import type { FlashElement } from "./fragments.js";

/** What a kernel knows about dropout. `isShared`: the number of columns is a multiple of four, so lanes share calls. */
export interface FlashDropout {
  readonly isShared: boolean;
}

/** The numbers that a kernel with dropout takes, after its memory: words below the threshold mean "keep". */
export function dropoutNumbers(element: FlashElement) {
  return { keepThreshold: "u32", dropoutScale: element === "f64" ? "f64" : "f32" } as const satisfies Record<
    string,
    Parameter
  >;
}

/** The arguments of dropout, and the constants of its kernels. */
export function dropoutOf({ columns, dropoutP, randomState }: FlashProblem | FlashBackwardProblem) {
  if (dropoutP === undefined || !randomState) return undefined;
  const numbers = { keepThreshold: thresholdOf(1 - dropoutP), dropoutScale: scaleOfKept(dropoutP) };
  const config: FlashDropout = { isShared: columns % 4 === 0 };
  return { config, arguments: { randomState, ...numbers } };
}

/** Rows of a warp's block of probabilities: queries, or keys if the kernel computes the transposed scores. */
type Side = "rows" | "columns";

/** How lanes exchange bits: lanes whose numbers differ in `lane`, bits whose numbers differ in `bit`. */
const exchanges: Readonly<Record<Side, string>> = {
  rows: "exchangeBits<1, 2, 0x33333333u>(kept)",
  columns: "exchangeBits<8, 2, 0x33333333u>(exchangeBits<4, 1, 0x55555555u>(kept))",
};

/** Of the four calls that four lanes share, a lane makes the one of this row and these columns, from the block's first on. */
const calls: Readonly<
  Record<Side, { readonly row: string; readonly column: string; readonly next: string }>
> = {
  rows: { row: "8 * (member % 2) + group", column: "member / 2 * 4", next: "2" },
  columns: {
    row: "2 * member + group % 2",
    column: "group / 2 % 2 * 8 + group / 4 * 4",
    next: "2ull * columns",
  },
};

/** The element e of block j, from the tile's first row and column on. */
const elements: Readonly<Record<Side, { readonly row: string; readonly column: string }>> = {
  rows: { row: "8 * (e / 2) + group", column: "8 * j + 2 * member + e % 2" },
  columns: { row: "8 * j + 2 * member + e % 2", column: "8 * (e / 2) + group" },
};

/** C++: the blocks of a tile with a visible element; the words of others are not drawn. */
const visibleBlocks: Readonly<Record<Side, string>> = {
  rows: `
    const unsigned begin = 0;
    const unsigned end = row + 15 < column ? 0 : (row + 15 - column) / 8 + 1 < blocks ? (row + 15 - column) / 8 + 1 : blocks;`,
  columns: `
    const unsigned begin = column < row ? 0 : (column - row) / 8;
    const unsigned end = blocks;`,
};

/** C++: `Dropout`, which tells for 16 × keptWidth elements of a warp which of them are kept. */
export function declareDropout({ isShared }: FlashDropout, side: Side, isCausal: boolean): string {
  const { row, column, next } = calls[side];
  const element = elements[side];
  const sharedCalls = `
    const unsigned long long first = indexOf(row + ${row}, column + ${column}) / 4;
#pragma unroll 4
    for (unsigned j = begin; j < end; j++) {
      const uint4 words = draw(first + j * ${next});
      const unsigned four = (words.x < threshold) | (words.y < threshold) << 1 | (words.z < threshold) << 2 | (words.w < threshold) << 3;
      kept |= four << 4 * j;
    }
    return ${exchanges[side]};`;
  const ownCalls = `
#pragma unroll 1
    for (unsigned number = 4 * begin; number < 4 * end; number++) {
      const unsigned j = number / 4, e = number % 4;
      const unsigned long long index = indexOf(row + ${element.row}, column + ${element.column});
      const uint4 words = draw(index / 4);
      const unsigned low = index % 2 ? words.y : words.x, high = index % 2 ? words.w : words.z;
      kept |= (unsigned)((index % 4 < 2 ? low : high) < threshold) << number;
    }
    return kept;`;
  return `
${philoxFunction}
${isShared ? exchangeBits : ""}
// A word has a bit for each element of a lane.
static constexpr unsigned keptWidth = tileN < 64 ? tileN : 64;

struct Dropout {
  const unsigned counter0, counter1, seed0, seed1, threshold;
  const unsigned long long firstRow;
  const unsigned columns;

  // The elements of a warp from this row and column on: bit 4 · j + e is 1 if accumulator e of block j is kept.
  __device__ __forceinline__ unsigned keptOf(unsigned row, unsigned column) const {
    constexpr unsigned blocks = keptWidth / 8;
    const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    unsigned kept = 0;${isCausal ? visibleBlocks[side] : "\n    const unsigned begin = 0, end = blocks;"}${isShared ? sharedCalls : ownCalls}
  }

 private:
  __device__ __forceinline__ unsigned long long indexOf(unsigned row, unsigned column) const { return (firstRow + row) * columns + column; }

  // Counter word 1 is 0 for all words that an array in memory could have.
  __device__ __forceinline__ uint4 draw(unsigned long long call) const {
    return philox((unsigned)call, (unsigned)(call >> 32) << 16, counter0, counter1, seed0, seed1);
  }
};`;
}

const exchangeBits = `
// Lanes whose numbers differ in \`lane\` exchange the bits whose numbers differ in \`bit\`; \`low\` has those where it is 0.
template <unsigned lane, unsigned bit, unsigned low>
static __device__ __forceinline__ unsigned exchangeBits(unsigned bits) {
  const unsigned theirs = __shfl_xor_sync(0xffffffffu, bits, lane);
  return threadIdx.x & lane ? (bits & ~low) | (theirs & ~low) >> bit : (bits & low) | (theirs & low) << bit;
}`;

/** C++: `dropout` of the (batch, head) pair with this number. */
export function declareDropoutOfPair(pair: string): string {
  return `
  const Dropout dropout = {
      randomState[${counter}], randomState[${counter + 1}], randomState[${seed}], randomState[${seed + 1}], keepThreshold,
      (unsigned long long)(${pair}) * rows, (unsigned)columns};`;
}

/** C++: whether an accumulator is kept. */
export const isKept = "kept[i] >> (4 * j + e) & 1";
