/** Tiles of operands in shared memory: how they lie there, how they come, and who waits for them. */

import type { Sm90Config } from "./configs.js";

/**
 * `Side`: one operand's tile in shared memory, 128 bytes of terms of each of its rows or columns of C. Terms that lie side by side
 * stay so, and half floats that lie apart too; floats that lie apart are turned round once they are there, four by four.
 */
export const sides = `
static constexpr unsigned depth = 128 / Element::bytes;

template <bool isKMajor, unsigned size>
struct Side {
  static constexpr bool isTransposed = transposesFloats && !isKMajor, liesKMajor = isKMajor || isTransposed;
  // Along: one box with a row for each row or column of C. Else a box has a row for each term, and so many of C's.
  static constexpr unsigned bytes = size * 128, across = 128 / Element::bytes, boxBytes = depth * 128;

  // Terms from \`term\` on, of the rows or columns of C from \`first\` on; what is not there becomes 0.
  static __device__ __forceinline__ void bring(
      unsigned char* to, const TensorMap* map, int first, int term, int matrix, Gate* gate) {
    if constexpr (isKMajor) {
      tmaLoad(to, map, term, first, matrix, gate);
    } else {
#pragma unroll
      for (unsigned box = 0; box < size / across; box++)
        tmaLoad(to + box * boxBytes, map, first + box * across, term, matrix, gate);
    }
  }

  // The place of a chunk of 16 bytes in its row of 128, such that neighbours of a column lie in different banks.
  static __device__ __forceinline__ unsigned placeOf(unsigned row, unsigned within) {
    return row * 128 + ((within ^ (row & 7)) << 4);
  }

  // A thread takes four columns of C and four terms; eight threads store to different banks.
  static __device__ __forceinline__ void turn(unsigned char* to, const unsigned char* from) {
#pragma unroll
    for (unsigned own = threadIdx.x; own < size * depth / 16; own += consumers) {
      const unsigned lane = own % 32, group = own / 32;
      const unsigned column = (group / 2 * 8 + (lane & 1) + lane / 8 * 2) * 4, term = (group % 2 * 4 + lane / 2 % 4) * 4;
      float4 terms[4];
#pragma unroll
      for (unsigned e = 0; e < 4; e++) {
        const unsigned char* box = from + column / across * boxBytes;
        terms[e] = *reinterpret_cast<const float4*>(box + placeOf(term + e, column % across / 4));
      }
      const float turned[4][4] = {{terms[0].x, terms[1].x, terms[2].x, terms[3].x}, {terms[0].y, terms[1].y, terms[2].y, terms[3].y},
                                  {terms[0].z, terms[1].z, terms[2].z, terms[3].z}, {terms[0].w, terms[1].w, terms[2].w, terms[3].w}};
#pragma unroll
      for (unsigned e = 0; e < 4; e++) {
        *reinterpret_cast<float4*>(to + placeOf(column + e, term / 4)) = make_float4(
            roundToTf32(turned[e][0]), roundToTf32(turned[e][1]), roundToTf32(turned[e][2]), roundToTf32(turned[e][3]));
      }
    }
  }

  // The tile from a row on, and from the so many-th 32 bytes of terms on.
  static __device__ __forceinline__ const unsigned char* at(const unsigned char* tile, unsigned row, unsigned part) {
    return liesKMajor ? tile + row * 128 + part * 32 : tile + row / across * boxBytes + part * (32 / Element::bytes * 128);
  }
};`;

/** What a block may have of a multiprocessor's memory, less what stands around its tiles. */
export const maxTileBytes = 225 * 1024;

/** How many tiles that have been turned round there are: one is being made while two may still be multiplied. */
export const transposedTiles = 3;

/** Where a block's tiles are, and which part of C it makes. */
export function tileScheduler({ isSingle }: Sm90Config): string {
  return `
  // A swizzle goes by addresses, so that tiles begin on 1024 bytes.
  unsigned char* const tiles = launched + (1024 - reinterpret_cast<unsigned long long>(launched) % 1024) % 1024;
  const unsigned tilesAcross = (n + tileColumns - 1) / tileColumns${isSingle ? "" : ", tilesDown = (m + tileRows - 1) / tileRows"};
  const unsigned inBatch = block${isSingle ? "" : " % (tilesAcross * tilesDown)"};
  const long long product = ${isSingle ? "0" : "block / (tilesAcross * tilesDown)"};
  const int firstRow = inBatch / tilesAcross * tileRows, firstColumn = inBatch % tilesAcross * tileColumns;`;
}

/** Up to where the first tiles are on their way: the last warp brings them, the others multiply them. */
export function prologueFor({ tile, prefetchesB = false }: Sm90Config): string {
  const bring = (of: "a" | "b"): string => {
    const [from, batch] = of === "a" ? ["a, firstRow", "aBatch"] : ["b, firstColumn", "bBatch"];
    const isLeft = (of === "b") === (tile.swapsAB === true);
    const to = isLeft ? "Left::bring(tile" : "Right::bring(tile + Left::bytes";
    return `${to}, ${from}, step * depth, ${batch} == 0 ? 0 : product, full + stage);`;
  };
  const fetching = `
    for (unsigned step = 0; step < steps && step < stages; step++) {
      const unsigned stage = step;
      mbarrierArriveExpectTx(full + stage, Left::bytes + Right::bytes);
      unsigned char* const tile = tiles + stage * (Left::bytes + Right::bytes);
      ${bring("b")}
    }
    gridDependencyWait();
    for (unsigned step = 0; step < steps && step < stages; step++) {
      const unsigned stage = step;
      unsigned char* const tile = tiles + stage * (Left::bytes + Right::bytes);
      ${bring("a")}
    }`;
  return `
  unsigned char* const turned = tiles + stages * (Left::bytes + Right::bytes);
  Gate* const full = reinterpret_cast<Gate*>(turned + (Right::isTransposed ? ${transposedTiles} * Right::bytes : 0));
  Gate* const free = full + stages;
  const unsigned steps = (k + depth - 1) / depth;
  if (threadIdx.x < stages) {
    mbarrierInit(full + threadIdx.x, 1);
    mbarrierInit(free + threadIdx.x, consumers / 32);
  }
  fenceMbarrierInit();
  __syncthreads();${prefetchesB ? "" : "\n  gridDependencyWait();"}
  if (threadIdx.x >= consumers) {
    if (threadIdx.x > consumers) return;${prefetchesB ? fetching : ""}
    for (unsigned step = ${prefetchesB ? "stages" : "0"}; step < steps; step++) {
      const unsigned stage = step % stages;
      if (step >= stages) mbarrierWait(free + stage, (step / stages - 1) % 2);
      mbarrierArriveExpectTx(full + stage, Left::bytes + Right::bytes);
      unsigned char* const tile = tiles + stage * (Left::bytes + Right::bytes);
      ${bring("a")}
      ${bring("b")}
    }
    return;
  }${prefetchesB ? "\n  gridDependencyWait();" : ""}`;
}
