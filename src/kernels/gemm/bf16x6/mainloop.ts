/** C++: the producer and consumer warpgroups of a bf16x6 GEMM. */

import { splitKBarriers } from "../sm90/split-k.js";
import type { Bf16x6Config } from "./configs.js";

/** Two consumer warpgroups, and a producer warpgroup. */
export const [consumers, producers] = [256, 128];
const producerWarps = producers / 32;
/** Of A, B and B's terms. */
export const stages = 2;

/** A CTA of 384 threads starts with 168 registers per thread; the producers give some to the consumers. */
const [consumerRegisters, producerRegisters] = [208, 88];

/**
 * A producer warp loads 32 columns of C of a k-tile of B, splits them, and waits for its own TMA boxes only. Its lanes have different rows of
 * a tile, so that they load from different banks, and store to different ones.
 */
export const producer = ({ isKMajor, splitsK }: Bf16x6Config): string => `
  constexpr unsigned bytesA = tileM * tileK * 4, bytesB = tileN * tileK * 4, termBytes = tileN * tileK * 2;
  unsigned char* const tilesA = smem;
  unsigned char* const termsB = tilesA + stages * bytesA;
  unsigned char* const tilesB = termsB + stages * 3 * termBytes;
  Mbarrier* const fullA = reinterpret_cast<Mbarrier*>(tilesB + stages * bytesB);
  Mbarrier* const fullTerms = fullA + stages;
  Mbarrier* const empty = fullTerms + stages;
  Mbarrier* const loadedB = empty + stages + threadIdx.x % ${producers} / 32 * stages;
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < stages; stage++) {
      mbarrierInit(fullA + stage, 1);
      mbarrierInit(fullTerms + stage, ${producerWarps});
      mbarrierInit(empty + stage, consumers / 32);
    }
    for (unsigned barrier = 0; barrier < ${producerWarps} * stages; barrier++) mbarrierInit(empty + stages + barrier, 1);
  }
  fenceMbarrierInit();
  __syncthreads();
  gridDependencyWait();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  if (threadIdx.x >= consumers) {
    setmaxnregDec<${producerRegisters}>();
    auto loadA = [&](unsigned kTile) {
      if (kTile >= kTiles) return;
      unsigned char* const to = tilesA + kTile % stages * bytesA;
      const int fromK = (firstKTile + kTile) * tileK, fromMatrix = aBatch == 0 ? 0 : matrix;
      mbarrierArriveExpectTx(fullA + kTile % stages, bytesA);
${
  isKMajor.a
    ? `#pragma unroll
      for (unsigned box = 0; box < tileK / 32; box++)
        tmaLoad(to + box * (tileM * 128), a, fromK + 32 * box, firstM, fromMatrix, fullA + kTile % stages);`
    : `#pragma unroll
      for (unsigned box = 0; box < tileM / 32; box++)
        tmaLoad(to + box * (tileK * 128), a, firstM + 32 * box, fromK, fromMatrix, fullA + kTile % stages);`
}
    };
    auto loadB = [&](unsigned kTile) {
      if (kTile >= kTiles) return;
      unsigned char* const to = tilesB + kTile % stages * bytesB + warp * (bytesB / ${producerWarps});
      const int fromK = (firstKTile + kTile) * tileK, fromMatrix = bBatch == 0 ? 0 : matrix;
      mbarrierArriveExpectTx(loadedB + kTile % stages, bytesB / ${producerWarps});
${
  isKMajor.b
    ? `#pragma unroll
      for (unsigned box = 0; box < tileK / 32; box++)
        tmaLoad(to + box * (32 * 128), b, fromK + 32 * box, firstN + 32 * warp, fromMatrix, loadedB + kTile % stages);`
    : `      tmaLoad(to, b, firstN + 32 * warp, fromK, fromMatrix, loadedB + kTile % stages);`
}
    };
    if (lane == 0) {
#pragma unroll 1
      for (unsigned kTile = 0; kTile < stages; kTile++) {
        if (warp == 0) loadA(kTile);
        loadB(kTile);
      }
    }
    __syncwarp();
#pragma unroll 1
    for (unsigned kTile = 0; kTile < kTiles; kTile++) {
      const unsigned stage = kTile % stages, parity = kTile / stages % 2;
      if (kTile >= stages) {
        // The consumers have multiplied this stage's terms, and so have loaded the same k-tile of A before.
        mbarrierWait(empty + stage, parity ^ 1);
        if (threadIdx.x == consumers) loadA(kTile);
      }
      mbarrierWait(loadedB + stage, parity);
      const unsigned char* const from = tilesB + stage * bytesB + warp * (bytesB / ${producerWarps});
      unsigned char* const to = termsB + stage * (3 * termBytes);
#pragma unroll 2
      for (unsigned eight = 0; eight < 8; eight++) {
${isKMajor.b ? kMajorEight : mnMajorEight}
        const float4 low = *reinterpret_cast<const float4*>(from + source);
        const float4 high = *reinterpret_cast<const float4*>(from + (source ^ 16));
        unsigned terms[4][3];
        splitPair(low.x, low.y, terms[0]);
        splitPair(low.z, low.w, terms[1]);
        splitPair(high.x, high.y, terms[2]);
        splitPair(high.z, high.w, terms[3]);
#pragma unroll
        for (unsigned term = 0; term < 3; term++) {
          *reinterpret_cast<uint4*>(to + term * termBytes + destination) =
              make_uint4(terms[0][term], terms[1][term], terms[2][term], terms[3][term]);
        }
      }
      fenceProxyAsync();
      __syncwarp();
      if (lane == 0) {
        mbarrierArrive(fullTerms + stage);
        loadB(kTile + stages);
      }
    }${splitsK > 1 ? clusterBarriers : ""}
    return;
  }`;

/** Eight floats of K-major B: lane: row of C's columns, \`eight\`: eight of K. */
const kMajorEight = `        const unsigned source = eight / 4 * (32 * 128) + swizzledOffset(lane, eight % 4 * 2);
        const unsigned destination = swizzledOffset(32 * warp + lane, eight);`;

/** Eight floats of MN-major B: a lane has two rows of K, and \`eight % 4\` is eight of the warp's 32 columns. */
const mnMajorEight = `        const unsigned row = lane + eight / 4 * 32, source = swizzledOffset(row, eight % 4 * 2);
        const unsigned destination = warp / 2 * (tileK * 128) + swizzledOffset(row, warp % 2 * 4 + eight % 4);`;

/** All threads of the cluster take part in its barriers, at which the consumers exchange accumulators. */
const clusterBarriers = `
    __syncwarp();
    for (unsigned barrier = 0; barrier < ${splitKBarriers}; barrier++) {
      clusterArrive();
      clusterWait();
    }`;

/** The pairs of terms whose products are summed, the smallest first. The others are below the last bit of a float's product. */
const products = [
  [2, 0],
  [0, 2],
  [1, 1],
  [1, 0],
  [0, 1],
  [0, 0],
] as const;

/**
 * A consumer warpgroup has 64 rows. wgmma rounds its sums towards zero. So each k-tile has accumulators of its own, \`acc\`, which are added
 * to \`sums\` in float32. The wgmmas of one warpgroup run while the other loads, splits and adds.
 */
export const consumer = ({ isKMajor }: Bf16x6Config): string => `
  setmaxnregInc<${consumerRegisters}>();
  const unsigned group = lane / 4, member = lane % 4, warpM = threadIdx.x / 128 * 64 + warp * 16;
  // The rows of a lane's fragments and accumulators, such that half a warp loads from different banks.
${
  isKMajor.a
    ? `  const unsigned laneRow = warpM + group % 4 * 2 + group / 4;
  constexpr unsigned otherRow = 8;
  const unsigned fromA = swizzledOffset(laneRow, 0) + member % 2 * 8;`
    : `  const unsigned laneRow = warpM + 2 * group;
  constexpr unsigned otherRow = 1;
  const unsigned chunkA = warpM % 32 / 4 + group / 2;
  const unsigned char* const boxA = tilesA + warpM / 32 * (tileK * 128) + group % 2 * 8;`
}
  float acc[64], sums[64];
#pragma unroll
  for (unsigned e = 0; e < 64; e++) sums[e] = 0;
#pragma unroll 1
  for (unsigned kTile = 0; kTile < kTiles; kTile++) {
    const unsigned stage = kTile % stages, parity = kTile / stages % 2;
    unsigned fragments[3][tileK / 16][4];
    mbarrierWait(fullA + stage, parity);
#pragma unroll
    for (unsigned kStep = 0; kStep < tileK / 16; kStep++) {
#pragma unroll
      for (unsigned half = 0; half < 2; half++) {
${isKMajor.a ? loadKMajor : loadMnMajor}
        unsigned terms[2][3];
        splitPair(${isKMajor.a ? "upper.x, upper.y" : "even.x, odd.x"}, terms[0]);
        splitPair(${isKMajor.a ? "lower.x, lower.y" : "even.y, odd.y"}, terms[1]);
#pragma unroll
        for (unsigned term = 0; term < 3; term++) {
          fragments[term][kStep][2 * half] = terms[0][term];
          fragments[term][kStep][2 * half + 1] = terms[1][term];
        }
      }
    }
    mbarrierWait(fullTerms + stage, parity);
    const unsigned char* const stageTerms = termsB + stage * (3 * termBytes);
#pragma unroll
    for (unsigned e = 0; e < 64; e++) fenceOperand(acc[e]);
    wgmmaFence();
${products.map(multiply).join("\n")}
    wgmmaCommit();
    wgmmaWait<0>();
#pragma unroll
    for (unsigned e = 0; e < 64; e++) fenceOperand(acc[e]);
    if (lane == 0) mbarrierArrive(empty + stage);
#pragma unroll
    for (unsigned e = 0; e < 64; e++) sums[e] += acc[e];
  }`;

const loadKMajor = `        // Chunks of four floats: this lane's two floats are in one half of one.
        const unsigned char* const box = tilesA + stage * bytesA + kStep / 2 * (tileM * 128);
        const unsigned at = fromA ^ ((kStep % 2 * 4 + half * 2 + member / 2) << 4);
        const float2 upper = *reinterpret_cast<const float2*>(box + at);
        const float2 lower = *reinterpret_cast<const float2*>(box + at + 8 * 128);`;

const loadMnMajor = `        const unsigned row = 16 * kStep + 8 * half + 2 * member;
        const float2 even = *reinterpret_cast<const float2*>(boxA + stage * bytesA + swizzledOffset(row, chunkA));
        const float2 odd = *reinterpret_cast<const float2*>(boxA + stage * bytesA + swizzledOffset(row + 1, chunkA));`;

const multiply = ([a, b]: readonly [number, number], index: number): string => `#pragma unroll
    for (unsigned kStep = 0; kStep < tileK / 16; kStep++)
      wgmmaRs<Bf16, tileN, isBKMajor>(acc, fragments[${a}][kStep], termTile(stageTerms + ${b} * termBytes, kStep), ${index === 0 ? "kStep > 0" : "true"});`;
