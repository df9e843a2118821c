/**
 * Dropout in the flash attention kernels. The numbers are those of a draw for [batch, heads, rows, columns] whose rows begin with a new
 * Philox call: one call has the numbers of eight neighbouring columns.
 *
 * A lane has four probabilities of each block of 16 × 8, in two rows and two columns. Lanes that need numbers of the same calls share these:
 * four lanes if rows are queries, eight if rows are keys. Each makes one call for two blocks, compares its numbers with the threshold, and
 * the lanes exchange the bits of a whole tile by two or three shuffles. Blocks that no row sees are not drawn.
 *
 * The forward pass can store these bits (`keptBits`), one word of a lane after the other. Backward kernels then load them: those of queries
 * as they are; those of keys, which have the transposed tile, byte by byte.
 */

import type { Parameter } from "../../../../driver/index.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import { counter, philoxIntrinsics, seed } from "../../../codegen/cuda/intrinsics/philox.js";
import { numbersPerCall, scaleOfKept, thresholdOf } from "../../../random/index.js";
import { keptColumns, keptRows } from "../../kept-bits.js";
import type { FlashBackwardProblem, FlashProblem } from "../../problem.js";
import type { FlashElement } from "./fragments.js";

/** What a kernel does for dropout: it draws, draws and stores the bits, or loads the bits. */
export type FlashDropout = "none" | "draws" | "stores" | "loads";

/** The memory that a kernel with dropout takes. */
export function dropoutMemory(dropout: FlashDropout): Readonly<Record<string, Parameter>> {
  return {
    ...((dropout === "draws" || dropout === "stores") && { randomState: "in" as const }),
    ...(dropout === "stores" && { keptBits: "partial-out" as const }),
    ...(dropout === "loads" && { keptBits: "in" as const }),
  };
}

/** C++ types of that memory. */
export const dropoutPointers = { randomState: "unsigned", keptBits: "unsigned char" } as const;

/** The numbers that a kernel with dropout takes, after its memory: drawn numbers below the threshold mean "keep". */
export function dropoutNumbers(
  dropout: FlashDropout,
  element: FlashElement,
): Readonly<Record<string, Parameter>> {
  if (dropout === "none") return {};
  return {
    ...(dropout !== "loads" && { keepThreshold: "u32" as const }),
    dropoutScale: element === "f64" ? "f64" : "f32",
  };
}

/** What the kernels of a problem do for dropout, and the arguments for it. */
export function dropoutOf({
  dropoutP,
  randomState,
  keptBits,
  ...problem
}: FlashProblem | FlashBackwardProblem) {
  if (dropoutP === undefined) return { dropout: "none" as const, dropoutArguments: {} };
  const isBackward = "outGradient" in problem;
  const dropout: FlashDropout = !keptBits ? "draws" : isBackward ? "loads" : "stores";
  const numbers = { keepThreshold: thresholdOf(1 - dropoutP), dropoutScale: scaleOfKept(dropoutP) };
  const memory = { ...(randomState && { randomState }), ...(keptBits && { keptBits }) };
  return { dropout, dropoutArguments: { ...memory, ...numbers } };
}

/** The rows of a warp's block of scores: rows of the score matrix, or its columns if the kernel computes the transposed scores. */
type BlockRows = "rows" | "columns";

/**
 * Which Philox call a lane makes for its warp's 16 visited rows or columns: the call of this row and of the eight columns from this one on. A
 * lane gets eight bits. `exchanges` then sends every bit to the lane that holds its accumulator.
 */
const calls: Readonly<Record<BlockRows, { readonly row: string; readonly column: string }>> = {
  rows: { row: "8 * (member % 2) + group", column: "16 * step + member / 2 * 8" },
  columns: { row: "16 * step + 8 * (group / 2 % 2) + 2 * member + group % 2", column: "group / 4 * 8" },
};

/** How lanes exchange bits: lanes whose numbers differ in `lane`, bits whose numbers differ in `bit`. */
const exchanges: Readonly<Record<BlockRows, string>> = {
  rows: "exchangeBits<2, 4, 0x0f0f0f0fu>(exchangeBits<1, 2, 0x33333333u>(dropped))",
  columns:
    "exchangeBits<16, 4, 0x0f0f0f0fu>(exchangeBits<8, 2, 0x33333333u>(exchangeBits<4, 1, 0x55555555u>(dropped)))",
};

/** C++: the number of accumulator e of block j among a lane's bits. */
const bits: Readonly<Record<BlockRows, string>> = {
  rows: "4 * j + e",
  columns: "8 * (j / 2) + 4 * (e / 2) + 2 * (j % 2) + e % 2",
};

/** C++: `Dropout`, which tells for 16 × keptWidth elements of a warp which of them are kept. */
export function declareDropout(dropout: FlashDropout, blockRows: BlockRows): string {
  if (dropout === "none") return "";
  const isDrawn = dropout !== "loads";
  const keptOf = isDrawn
    ? drawnBits(blockRows, dropout === "stores")
    : blockRows === "rows"
      ? loadedWord
      : loadedBytes;
  return `
${isDrawn ? `${philoxIntrinsics.philox.code}\n${onlyOnDevice(shiftInCarry)}\n${exchangeBits}` : blockRows === "columns" ? transposeKept : ""}
// A word has a bit for each element of a lane.
static constexpr unsigned keptWidth = tileN < ${keptColumns} ? tileN : ${keptColumns};

// The bit of accumulator e of block j.
static __device__ __forceinline__ constexpr unsigned keptBit(unsigned j, unsigned e) { return ${bits[blockRows]}; }

struct Dropout {
  const unsigned rows, columns, pair;
${isDrawn ? drawnMembers : ""}${dropout === "draws" ? "" : storedMembers(dropout)}
  // The bits of the elements of a warp from this row and column on: 1 if an element is kept.${isDrawn ? visibleSteps : ""}
  __device__ __forceinline__ unsigned keptOf(unsigned row, unsigned column${isDrawn ? ", unsigned steps = keptWidth / 16" : ""}) const {${keptOf}
  }
};`;
}

const visibleSteps = `
  // Blocks of 16 columns after the first \`steps\` are not drawn.`;

const drawnMembers = `
  const unsigned counter0, counter1, seed0, seed1;
  // 2^32 − threshold, with the 16-bit threshold in the upper half. The sum with a number carries if the number is at least the threshold.
  const unsigned complement;

  // One bit per number of a call, the first number's is the lowest. 1: dropped.
  __device__ __forceinline__ unsigned draw(unsigned row, unsigned column) const {
    const unsigned callsPerRow = (columns + ${numbersPerCall - 1}) / ${numbersPerCall};
    const unsigned long long call = ((unsigned long long)pair * rows + row) * callsPerRow + column / ${numbersPerCall};
    // Counter word 1 is 0 for all numbers that an array in memory could have.
    const uint4 four = philox((unsigned)call, (unsigned)(call >> 32) << 16, counter0, counter1, seed0, seed1);
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
    unsigned dropped = 0;
#pragma unroll
    for (unsigned i = 4; i-- > 0;) dropped = shiftInCarry(shiftInCarry(dropped, words[i], complement), words[i] << 16, complement);
    return dropped;
  }
`;

const storedMembers = (dropout: FlashDropout): string => `
  ${dropout === "loads" ? "const " : ""}unsigned char* const memory;

  // The byte of a lane's elements in the 16 rows and 16 columns from here on.
  __device__ __forceinline__ unsigned long long byteAt(unsigned row, unsigned column, unsigned lane) const {
    const unsigned rowBlocks = (rows + ${keptRows - 1}) / ${keptRows}, columnBlocks = (columns + ${keptColumns - 1}) / ${keptColumns};
    const unsigned block = column / ${keptColumns} * rowBlocks + row / ${keptRows};
    return (unsigned long long)pair * (rowBlocks * columnBlocks * 128) + (block * 128 + lane * 4 + column % ${keptColumns} / 16);
  }`;

/** C++: whole words of lanes; a tile of fewer columns has a part of a word. */
const accessWord = (access: (type: string) => string): string => `
    if constexpr (keptWidth == 64) ${access("unsigned")}
    else if constexpr (keptWidth == 32) ${access("unsigned short")}
    else ${access("unsigned char")}`;

function drawnBits(blockRows: BlockRows, isStored: boolean): string {
  const { row, column } = calls[blockRows];
  const store = (type: string): string =>
    `*reinterpret_cast<${type}*>(memory + byteAt(row, column, lane)) = (${type})kept;`;
  return `
    const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    unsigned dropped = 0;
    // Two calls at a time hide each other's latency; more take too many registers.
    constexpr unsigned atOnce = keptWidth / 16 % 2 == 0 ? 2 : 1;
#pragma unroll 1
    for (unsigned next = (steps + atOnce - 1) / atOnce * atOnce; next > 0; next -= atOnce) {
      unsigned drawn[atOnce];
#pragma unroll
      for (unsigned i = 0; i < atOnce; i++) {
        const unsigned step = next - 1 - i;
        drawn[i] = draw(row + ${row}, column + ${column});
      }
#pragma unroll
      for (unsigned i = 0; i < atOnce; i++) dropped = dropped << ${numbersPerCall} | drawn[i];
    }
    const unsigned kept = ~${exchanges[blockRows]};${isStored ? `\n    if (row < rows && column < columns) {${accessWord(store)}\n    }` : ""}
    return kept;`;
}

const loadedWord = `
    const unsigned lane = threadIdx.x % 32;
    if (row >= rows || column >= columns) return 0;${accessWord(
      (type) => `return *reinterpret_cast<const ${type}*>(memory + byteAt(row, column, lane));`,
    )}`;

const loadedBytes = `
    return transposeKept<keptWidth>([&](unsigned block, unsigned source) -> unsigned {
      return row + 16 * block < rows && column < columns ? memory[byteAt(row + 16 * block, column, source)] : 0;
    });`;

/** C++: a lane has keys of one parity, and its queries are of two lanes of the stored tile. */
const transposeKept = `
// The bits of 16 keys and some queries: byteOf gives the byte of a lane of the stored tile, of 16 queries and those keys.
template <unsigned width, class Bytes>
static __device__ __forceinline__ unsigned transposeKept(Bytes byteOf) {
  const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  unsigned kept = 0;
#pragma unroll
  for (unsigned i = 0; i < width / 8; i++) {
    const unsigned byte = byteOf(i / 2, 4 * (2 * member + i % 2) + group / 2);
    kept |= (byte >> group % 2 & 0x55u) << (i / 2 * 8 + i % 2);
  }
  return kept;
}`;

/** Two instructions per number. A comparison takes more: it sets a predicate, selects a bit, and the bits are added. */
const shiftInCarry = `// bits << 1, with the carry of a + b as the new bit.
static __device__ __forceinline__ unsigned shiftInCarry(unsigned bits, unsigned a, unsigned b) {
  asm("{\\n.reg .u32 sum;\\nadd.cc.u32 sum, %1, %2;\\naddc.u32 %0, %0, %0;\\n}" : "+r"(bits) : "r"(a), "r"(b));
  return bits;
}`;

const exchangeBits = `
// Lanes whose numbers differ in \`lane\` exchange the bits whose numbers differ in \`bit\`; \`low\` has those where it is 0.
template <unsigned lane, unsigned bit, unsigned low>
static __device__ __forceinline__ unsigned exchangeBits(unsigned bits) {
  const unsigned theirs = __shfl_xor_sync(0xffffffffu, bits, lane);
  return threadIdx.x & lane ? (bits & ~low) | (theirs & ~low) >> bit : (bits & low) | (theirs & low) << bit;
}`;

/** C++: `dropout` of the (batch, head) pair with this number. */
export function declareDropoutOfPair(dropout: FlashDropout, pair: string): string {
  if (dropout === "none") return "";
  const words = [counter, counter + 1, seed, seed + 1].map((word) => `randomState[${word}]`);
  const members = [
    ...["(unsigned)rows", "(unsigned)columns", `(unsigned)(${pair})`],
    ...(dropout === "loads" ? [] : [...words, "0u - (keepThreshold << 16)"]),
    ...(dropout === "draws" ? [] : ["keptBits"]),
  ];
  return `
  const Dropout dropout = {${members.join(", ")}};`;
}

/** C++: whether an accumulator is kept. */
export const isKept = "kept[i] >> keptBit(j, e) & 1";
