/**
 * Dropout in the flash attention kernels. The numbers are those of a draw for [batch, heads, rows, columns] whose rows begin with a new
 * Philox call: one call has the numbers of eight neighbouring columns. They have no memory: both directions compute them again.
 *
 * A lane has four probabilities of each block of 16 × 8, in two rows and two columns. Lanes that need numbers of the same calls share these:
 * four lanes if rows are queries, eight if rows are keys. Each makes one call for two blocks, compares its numbers with the threshold, and
 * the lanes exchange the bits of a whole tile by two or three shuffles.
 */

import type { Parameter } from "../../../../driver/index.js";
import { counter, philoxIntrinsics, seed } from "../../../codegen/cuda/intrinsics/philox.js";
import { numbersPerCall, scaleOfKept, thresholdOf } from "../../../random/index.js";
import type { FlashBackwardProblem, FlashProblem } from "../../problem.js";
import type { FlashElement } from "./fragments.js";

/** The numbers that a kernel with dropout takes, after its memory: drawn numbers below the threshold mean "keep". */
export function dropoutNumbers(element: FlashElement) {
  return { keepThreshold: "u32", dropoutScale: element === "f64" ? "f64" : "f32" } as const satisfies Record<
    string,
    Parameter
  >;
}

/** The arguments of dropout, if a problem has it. */
export function dropoutOf({ dropoutP, randomState }: FlashProblem | FlashBackwardProblem) {
  if (dropoutP === undefined || !randomState) return undefined;
  return { randomState, keepThreshold: thresholdOf(1 - dropoutP), dropoutScale: scaleOfKept(dropoutP) };
}

/** Rows of a warp's block of probabilities: queries, or keys if the kernel computes the transposed scores. */
type Side = "rows" | "columns";

/**
 * Of the calls that a warp needs for 16 visited rows or columns, a lane makes the one of this row and these columns. Bit i of its eight then
 * goes to the lane whose number has the bits of i, from its lowest one `exchanged` on.
 */
const calls: Readonly<Record<Side, { readonly row: string; readonly column: string }>> = {
  rows: { row: "8 * (member % 2) + group", column: "16 * step + member / 2 * 8" },
  columns: { row: "16 * step + 8 * (group / 2 % 2) + 2 * member + group % 2", column: "group / 4 * 8" },
};

/** How lanes exchange bits: lanes whose numbers differ in `lane`, bits whose numbers differ in `bit`. */
const exchanges: Readonly<Record<Side, string>> = {
  rows: "exchangeBits<2, 4, 0x0f0f0f0fu>(exchangeBits<1, 2, 0x33333333u>(kept))",
  columns:
    "exchangeBits<16, 4, 0x0f0f0f0fu>(exchangeBits<8, 2, 0x33333333u>(exchangeBits<4, 1, 0x55555555u>(kept)))",
};

/** C++: the number of accumulator e of block j among a lane's bits. */
const bits: Readonly<Record<Side, string>> = {
  rows: "4 * j + e",
  columns: "8 * (j / 2) + 4 * (e / 2) + 2 * (j % 2) + e % 2",
};

/** C++: whether a causal mask leaves an element of a step visible; the numbers of other steps are not drawn. */
const isVisible: Readonly<Record<Side, string>> = {
  rows: "column + 16 * step <= row + 15",
  columns: "column <= row + 16 * step + 15",
};

/** C++: `Dropout`, which tells for 16 × keptWidth elements of a warp which of them are kept. */
export function declareDropout(side: Side, isCausal: boolean): string {
  const { row, column } = calls[side];
  return `
${philoxIntrinsics.philox.code}
${exchangeBits}
// A word has a bit for each element of a lane.
static constexpr unsigned keptWidth = tileN < 64 ? tileN : 64;

// The bit of accumulator e of block j.
static __device__ __forceinline__ constexpr unsigned keptBit(unsigned j, unsigned e) { return ${bits[side]}; }

struct Dropout {
  const unsigned counter0, counter1, seed0, seed1, threshold;
  const unsigned long long firstRow;
  const unsigned callsPerRow;

  // The bits of the elements of a warp from this row and column on: 1 if an element is kept.
  __device__ __forceinline__ unsigned keptOf(unsigned row, unsigned column) const {
    constexpr unsigned steps = keptWidth / 16;
    const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    unsigned kept = 0;
#pragma unroll
    for (unsigned step = 0; step < steps; step++)
      ${isCausal ? `if (${isVisible[side]}) ` : ""}kept |= draw(row + ${row}, column + ${column}) << 8 * step;
    return ${exchanges[side]};
  }

 private:
  // Bit i is 1 if number i of a call is below the threshold, which has its 16 bits at the top.
  __device__ __forceinline__ unsigned draw(unsigned row, unsigned column) const {
    const unsigned long long call = (firstRow + row) * callsPerRow + column / ${numbersPerCall};
    // Counter word 1 is 0 for all numbers that an array in memory could have.
    const uint4 four = philox((unsigned)call, (unsigned)(call >> 32) << 16, counter0, counter1, seed0, seed1);
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
    unsigned kept = 0;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      if (words[i] << 16 < threshold) kept |= 1u << 2 * i;
      if (words[i] < threshold) kept |= 2u << 2 * i;
    }
    return kept;
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
      randomState[${counter}], randomState[${counter + 1}], randomState[${seed}], randomState[${seed + 1}], keepThreshold << 16,
      (unsigned long long)(${pair}) * rows, ((unsigned)columns + ${numbersPerCall - 1}) / ${numbersPerCall}};`;
}

/** C++: whether an accumulator is kept. */
export const isKept = "kept[i] >> keptBit(j, e) & 1";
