/** Operand tiles in shared memory: their 128-byte swizzle, the TMA producer warp, and the tile scheduler. */

import { maxSharedBytesPerBlock } from "../../cost-model.js";
import { type Sm90Config, sm90Capability } from "./configs.js";
import { countKTiles, selectProduct } from "./products.js";
import { splitKBarriers, splitKTiles } from "./split-k.js";

/**
 * `SmemTile`: the k-tile of one operand, 128 bytes of K for each of `size` rows (A) or columns (B) of C. K-major tiles and MN-major tiles
 * of 16-bit elements stay as they are loaded. MN-major tiles of TF32 are transposed in shared memory, in 4×4 blocks.
 */
export const smemTile = `
static constexpr unsigned tileK = 128 / Element::bytes;

template <bool isSourceKMajor, unsigned size>
struct SmemTile {
  static constexpr bool isTransposed = transposesTf32 && !isSourceKMajor, isKMajor = isSourceKMajor || isTransposed;
  // K-major: one TMA box with a row per row of C. MN-major: boxes with a row per k and \`boxMn\` rows of C.
  static constexpr unsigned bytes = size * 128, boxMn = 128 / Element::bytes, boxBytes = tileK * 128;

  // Loads the k-tile from \`k\` on, for the rows or columns of C from \`mn\` on. TMA fills with 0 outside of the matrix.
  static __device__ __forceinline__ void load(
      unsigned char* smem, const TensorMap* map, int mn, int k, int matrix, Mbarrier* barrier) {
    if constexpr (isSourceKMajor) {
      tmaLoad(smem, map, k, mn, matrix, barrier);
    } else {
#pragma unroll
      for (unsigned box = 0; box < size / boxMn; box++)
        tmaLoad(smem + box * boxBytes, map, mn + box * boxMn, k, matrix, barrier);
    }
  }

  // The offset of a 16-byte chunk in the 128-byte swizzle: chunks of one column lie in different banks.
  static __device__ __forceinline__ unsigned swizzledOffset(unsigned row, unsigned chunk) {
    return row * 128 + ((chunk ^ (row & 7)) << 4);
  }

  // A thread transposes a block of 4 mn × 4 k; eight neighbouring threads store to different banks.
  static __device__ __forceinline__ void transpose(unsigned char* kMajor, const unsigned char* mnMajor) {
#pragma unroll
    for (unsigned block = threadIdx.x; block < size * tileK / 16; block += consumers) {
      const unsigned lane = block % 32, group = block / 32;
      const unsigned mn = (group / 2 * 8 + (lane & 1) + lane / 8 * 2) * 4, k = (group % 2 * 4 + lane / 2 % 4) * 4;
      float4 rows[4];
#pragma unroll
      for (unsigned e = 0; e < 4; e++) {
        const unsigned char* box = mnMajor + mn / boxMn * boxBytes;
        rows[e] = *reinterpret_cast<const float4*>(box + swizzledOffset(k + e, mn % boxMn / 4));
      }
      const float columns[4][4] = {{rows[0].x, rows[1].x, rows[2].x, rows[3].x}, {rows[0].y, rows[1].y, rows[2].y, rows[3].y},
                                   {rows[0].z, rows[1].z, rows[2].z, rows[3].z}, {rows[0].w, rows[1].w, rows[2].w, rows[3].w}};
#pragma unroll
      for (unsigned e = 0; e < 4; e++) {
        *reinterpret_cast<float4*>(kMajor + swizzledOffset(mn + e, k / 4)) =
            make_float4(columns[e][0], columns[e][1], columns[e][2], columns[e][3]);
      }
    }
  }

  // The offset of the operand of one wgmma in its tile: from row \`mn\` on, and the \`kStep\`-th 32 bytes of K.
  static __device__ __forceinline__ constexpr unsigned offset(unsigned mn, unsigned kStep) {
    return isKMajor ? mn * 128 + kStep * 32 : mn / boxMn * boxBytes + kStep * (32 / Element::bytes * 128);
  }
};`;

/** The alignment of tiles: the 128-byte swizzle follows address bits. */
export const smemAlignment = 1024;

/** Shared memory for the stages of a CTA: all of it, except for the alignment and 1 KiB for mbarriers. */
export const maxStageBytes =
  maxSharedBytesPerBlock({ computeCapability: sm90Capability }) - smemAlignment - 1024;

/** Buffers for transposed tiles of B: one is being written while up to two are still read by wgmma. */
export const transposedStages = 3;

/** The tile scheduler: which tile of C, and of which matrix of the batch, this CTA computes. */
export function tileScheduler({ isUnbatched }: Sm90Config): string {
  return `
  unsigned char* const stageTiles = smem + (${smemAlignment} - reinterpret_cast<unsigned long long>(smem) % ${smemAlignment}) % ${smemAlignment};
  const unsigned tilesN = (n + tileN - 1) / tileN${isUnbatched ? "" : ", tilesM = (m + tileM - 1) / tileM"};
  const unsigned tile = cta${isUnbatched ? "" : " % (tilesN * tilesM)"};
  const long long matrix = ${isUnbatched ? "0" : "cta / (tilesN * tilesM)"};
  const int firstM = tile / tilesN * tileM, firstN = tile % tilesN * tileN;`;
}

/** The producer thread, and how the others of its warp end: with split-K they take part in the barriers of the reduction. */
const producer = (body: string, splitsK: number | undefined): string =>
  splitsK === undefined
    ? `
    if (threadIdx.x > consumers) return;${body}`
    : `
    if (threadIdx.x == consumers) {${body}
    }
    __syncwarp();
    for (unsigned barrier = 0; barrier < ${splitKBarriers}; barrier++) {
      clusterArrive();
      clusterWait();
    }`;

/**
 * The prologue: initialises the full and empty mbarriers of the stages. The last warp becomes the producer, which loads k-tiles by TMA
 * and returns; the consumer warpgroups continue.
 */
export function prologueFor(config: Sm90Config): string {
  const { tile, prefetchesB = false, products } = config;
  const { swapsAB = false, splitsK } = tile;
  const load = (operand: "a" | "b"): string => {
    const [map, first, batch] = operand === "a" ? ["a", "firstM", "aBatch"] : ["b", "firstN", "bBatch"];
    const isFirst = (operand === "b") === swapsAB;
    const destination = isFirst ? "TileA::load(stageTile" : "TileB::load(stageTile + TileA::bytes";
    const kTile = splitsK === undefined ? "kTile" : "(firstKTile + kTile)";
    const [source, at] = products ? [`map${map.toUpperCase()}`, "fromK"] : [map, `${kTile} * tileK`];
    return `${destination}, ${source}, ${first}, ${at}, ${batch} == 0 ? 0 : matrix, full + stage);`;
  };
  const select = (...operands: readonly ("A" | "B")[]): string =>
    products ? `\n      ${selectProduct(config, operands)}` : "";
  const prefetch = `
    for (unsigned kTile = 0; kTile < kTiles && kTile < stages; kTile++) {
      const unsigned stage = kTile;
      mbarrierArriveExpectTx(full + stage, TileA::bytes + TileB::bytes);
      unsigned char* const stageTile = stageTiles + stage * (TileA::bytes + TileB::bytes);${select("B")}
      ${load("b")}
    }
    gridDependencyWait();
    for (unsigned kTile = 0; kTile < kTiles && kTile < stages; kTile++) {
      const unsigned stage = kTile;
      unsigned char* const stageTile = stageTiles + stage * (TileA::bytes + TileB::bytes);${select("A")}
      ${load("a")}
    }`;
  const loadAll = `
    for (unsigned kTile = ${prefetchesB ? "stages" : "0"}; kTile < kTiles; kTile++) {
      const unsigned stage = kTile % stages;
      if (kTile >= stages) mbarrierWait(empty + stage, (kTile / stages - 1) % 2);
      mbarrierArriveExpectTx(full + stage, TileA::bytes + TileB::bytes);
      unsigned char* const stageTile = stageTiles + stage * (TileA::bytes + TileB::bytes);${select("A", "B")}
      ${load("a")}
      ${load("b")}
    }`;
  return `
  unsigned char* const transposed = stageTiles + stages * (TileA::bytes + TileB::bytes);
  Mbarrier* const full = reinterpret_cast<Mbarrier*>(transposed + (TileB::isTransposed ? ${transposedStages} * TileB::bytes : 0));
  Mbarrier* const empty = full + stages;${splitsK === undefined ? countKTiles(config) : splitKTiles(splitsK)}
  if (threadIdx.x < stages) {
    mbarrierInit(full + threadIdx.x, 1);
    mbarrierInit(empty + threadIdx.x, consumers / 32);
  }
  fenceMbarrierInit();
  __syncthreads();${prefetchesB ? "" : "\n  gridDependencyWait();"}
  if (threadIdx.x >= consumers) {${producer(`${prefetchesB ? prefetch : ""}${loadAll}`, splitsK)}
    return;
  }${prefetchesB ? "\n  gridDependencyWait();" : ""}`;
}
