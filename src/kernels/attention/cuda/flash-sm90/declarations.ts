/** What the flash attention kernels on `wgmma` declare before their bodies: tiles in shared memory, their products, and stores. */

import { ex2Approx } from "../../../codegen/cuda/intrinsics/fast-math.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import { mbarrierIntrinsics } from "../../../codegen/cuda/intrinsics/mbarrier.js";
import { packHalves } from "../../../codegen/cuda/intrinsics/mma.js";
import { cpAsyncBulk, tmaIntrinsics } from "../../../codegen/cuda/intrinsics/tma.js";
import {
  elementTags,
  mmaElements,
  namedBarrierSync,
  setmaxnreg,
  smemDescriptor,
  wgmmaGroups,
  wgmmaHalves,
} from "../../../codegen/cuda/intrinsics/wgmma.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { declareDropout } from "../flash/dropout.js";
import { pointTo } from "../parameters.js";
import { consumersOf, type Side, type Sm90FlashConfig, tileM } from "./config.js";

/** C++: the sizes of a kernel's tiles, and the functions on tiles and accumulators. A warp's rows are of `side`. */
export function declareSm90Flash(
  { element, tile, width, valueWidth, dropout }: Sm90FlashConfig,
  side: Side,
): string {
  const sizes = [...new Set([tile.tileN, width, valueWidth])];
  const ptx = [
    ...[elementTags, smemDescriptor, wgmmaHalves(element, sizes), wgmmaGroups, setmaxnreg, namedBarrierSync],
    ...[mbarrierIntrinsics, tmaIntrinsics, packHalves(element), ex2Approx],
    ...(dropout === "loads" && side === "columns" ? [cpAsyncBulk] : []),
  ];
  return `
${preludeOf(new Set(["swizzledSharedMemory"]))}${onlyOnDevice(ptx.join("\n"))}
typedef ${mmaElements[element].type} Element;
[[maybe_unused]] static constexpr unsigned warpgroups = ${tile.warpgroups}, consumers = ${consumersOf(tile)}, tileM = ${tileM(tile)}, tileN = ${tile.tileN};
static constexpr unsigned stages = ${tile.stages}, width = ${width}, valueWidth = ${valueWidth};
${tiles}${declareDropout(dropout, side)}${dropout === "none" ? "" : keptElements(dropout === "loads" && side === "rows")}
${pointTo}`;
}

const tiles = `
// Rows of 16-bit elements in shared memory: boxes of 64 columns in the 128-byte swizzle, one after the other.
template <unsigned rows, unsigned width>
struct Tile {
  static constexpr unsigned boxes = (width + 63) / 64, boxBytes = rows * 128, bytes = boxes * boxBytes;

  static __device__ __forceinline__ void load(
      unsigned char* tile, const TensorMap* map, int column, int row, int matrix, Mbarrier* barrier) {
#pragma unroll
    for (unsigned box = 0; box < boxes; box++) tmaLoad(tile + box * boxBytes, map, column + 64 * box, row, matrix, barrier);
  }
};

// A position in a ring of stages.
struct Position {
  unsigned stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    stage++;
    if (stage == stages) stage = 0, parity ^= 1;
  }
};

template <unsigned count>
static __device__ __forceinline__ void fenceAll(float (&acc)[count]) {
#pragma unroll
  for (unsigned i = 0; i < count; i++) fenceOperand(acc[i]);
}

// acc[64, n] = Σ_d a[64, d] · b[n, d]. Asynchronous.
template <unsigned width, unsigned n>
static __device__ __forceinline__ void multiply(float (&acc)[n / 2], const unsigned char* a, const unsigned char* b) {
  const SmemOperand first = smemOperand(a), second = smemOperand(b);
#pragma unroll
  for (unsigned k = 0; k < width / 16; k++) {
    const unsigned inBox = k % 4 * 32;
    wgmmaSs<Element, n>(acc, advance(first, k / 4 * Tile<64, width>::boxBytes + inBox),
                        advance(second, k / 4 * Tile<n, width>::boxBytes + inBox), k > 0);
  }
}

// acc[64, width] += Σ_n a[64, n] · b[n, width]. Asynchronous.
template <unsigned n, unsigned width>
static __device__ __forceinline__ void multiplyPacked(
    float (&acc)[width / 2], const unsigned (&a)[n / 16][4], const unsigned char* b) {
  const SmemOperand second = smemOperand(b, Tile<n, width>::boxBytes);
#pragma unroll
  for (unsigned k = 0; k < n / 16; k++) wgmmaRs<Element, width>(acc, a[k], advance(second, k * (16 * 128)), true);
}

// Accumulators as the A operand of the next product.
template <unsigned n>
static __device__ __forceinline__ void pack(unsigned (&a)[n / 16][4], const float (&acc)[n / 2]) {
#pragma unroll
  for (unsigned i = 0; i < n / 4; i++) a[i / 4][i % 4] = packHalves<Element>(acc[2 * i], acc[2 * i + 1]);
}

// Stores a warpgroup's accumulators, scaled by a factor per row, through 64 rows of shared memory that no other warpgroup uses.
template <unsigned width>
static __device__ __forceinline__ void storeRows(
    const float (&acc)[width / 2], const float (&factors)[2], unsigned char* staging, unsigned short* to, long long rowStride, unsigned rows) {
  const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4, firstRow = threadIdx.x % 128 / 32 * 16;
  auto at = [&](unsigned row, unsigned chunk) {
    return staging + chunk / 8 * Tile<64, width>::boxBytes + row * 128 + ((chunk % 8 ^ row % 8) << 4);
  };
#pragma unroll
  for (unsigned j = 0; j < width / 8; j++) {
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
      const unsigned packed = packHalves<Element>(acc[4 * j + 2 * half] * factors[half], acc[4 * j + 2 * half + 1] * factors[half]);
      *reinterpret_cast<unsigned*>(at(firstRow + 8 * half + group, j) + 4 * member) = packed;
    }
  }
  __syncwarp();
#pragma unroll
  for (unsigned i = lane; i < 16 * (width / 8); i += 32) {
    const unsigned row = firstRow + i / (width / 8), chunk = i % (width / 8);
    if (row < rows) *reinterpret_cast<uint4*>(to + row * rowStride + 8 * chunk) = *reinterpret_cast<const uint4*>(at(row, chunk));
  }
}`;

const keptElements = (isLoaded: boolean): string => `
// A bit for each accumulator: 1 if dropout keeps it.
struct Kept {
  unsigned words[tileN / keptWidth];
${isLoaded ? loadElements : ""}  __device__ __forceinline__ bool has(unsigned i) const { return words[i / 32] >> keptBit(i % 32 / 4, i % 4) & 1; }
};

// Accumulators as the A operand of the next product, with 0 instead of dropped ones.
template <unsigned n>
static __device__ __forceinline__ void pack(unsigned (&a)[n / 16][4], const float (&acc)[n / 2], const Kept& kept) {
#pragma unroll
  for (unsigned i = 0; i < n / 4; i++)
    a[i / 4][i % 4] = packHalves<Element>(kept.has(2 * i) ? acc[2 * i] : 0, kept.has(2 * i + 1) ? acc[2 * i + 1] : 0);
}`;

/** C++: the number of blocks of 16 columns to draw, if the first `visible` columns of a word are visible. */
export const visibleSteps = `
static __device__ __forceinline__ unsigned visibleSteps(int visible) {
  const int steps = visible / 16;
  return steps < 0 ? 0 : steps < (int)keptWidth / 16 ? steps : keptWidth / 16;
}`;

const loadElements = `
  __device__ __forceinline__ void load(const Dropout& dropout, unsigned row, unsigned column) {
#pragma unroll
    for (unsigned i = 0; i < tileN / keptWidth; i++) words[i] = dropout.keptOf(row, column + i * keptWidth);
  }
`;

/**
 * C++: `kept` of a warp's rows and the visited tile. A word has `keptWidth` visited rows. With `lastRow`, the last row of a warp on side "rows",
 * later columns are not drawn: the tile is causal.
 */
export function drawKept(side: Side, stayed: string, visit: string, lastRow?: string): string {
  const visited = `${visit} + i * keptWidth`;
  const steps = lastRow && `visibleSteps(${lastRow} + 1 - (int)(${visited}))`;
  const at = side === "columns" ? [visited, stayed] : [stayed, visited, ...(steps ? [steps] : [])];
  return `
#pragma unroll
      for (unsigned i = 0; i < tileN / keptWidth; i++) kept.words[i] = dropout.keptOf(${at.join(", ")});`;
}

/**
 * C++: which tile of which (batch, head) a block has, as `tile` and `pairNumber`. Pairs come in sections whose visited operands fit in the
 * L2 cache together. `heads`: of one batch. In a section the blocks with the longest work come first: those with the last tiles or those with the first.
 */
export function declareWork(isLastFirst: boolean, heads = "heads"): string {
  return `
  const unsigned sectionBlocks = sectionPairs * tiles, firstPair = blockIdx.x / sectionBlocks * sectionPairs;
  const unsigned pairsHere = pairs - firstPair < sectionPairs ? pairs - firstPair : sectionPairs;
  const unsigned tile = ${isLastFirst ? "tiles - 1 - " : ""}blockIdx.x % sectionBlocks / pairsHere;
  const unsigned pairNumber = firstPair + blockIdx.x % sectionBlocks % pairsHere;
  const long long batch = pairNumber / (${heads}), head = pairNumber % (${heads});`;
}
