/**
 * The TF32 wgmma RS mainloop for MN-major A and B. Consumers load A from shared memory into registers: register fragments can be loaded
 * from any layout. A producer warpgroup loads by TMA and transposes B into K-major shared memory. These GEMMs have few tiles and a large K,
 * so the two CTAs of a cluster split K. Each CTA reduces half of the accumulators through distributed shared memory.
 */

import { smemAlignment } from "./smem-tiles.js";
import type { Sm90Tile } from "./tiles.js";

/** Two consumer warpgroups, and one producer warpgroup with a warp for each 32 columns of B. */
const [consumers, producers] = [256, 128];
const producerWarps = producers / 32;

export const rsThreads = consumers + producers;

/** Stages of transposed (K-major) B. */
const kMajorStages = 2;

/** Shared memory of a CTA: stages, mbarriers and the alignment of the swizzle. */
export function rsBytes({ tileM, tileN, stages }: Sm90Tile): number {
  const mbarriers = stages + 2 * kMajorStages + producerWarps * stages;
  return smemAlignment + stages * (tileM + tileN) * 128 + kMajorStages * tileN * 128 + 8 * mbarriers;
}

/** A CTA of 384 threads starts with 168 registers per thread; the producers give some to the consumers. */
const [consumerRegisters, producerRegisters] = [208, 88];

/** The prologue, and the producer warpgroup. */
const producer = `
  unsigned char* const mnMajorB = stageTiles + stages * TileA::bytes;
  unsigned char* const kMajorB = mnMajorB + stages * TileB::bytes;
  Mbarrier* const fullA = reinterpret_cast<Mbarrier*>(kMajorB + ${kMajorStages} * TileB::bytes);
  Mbarrier* const fullB = fullA + stages;
  Mbarrier* const emptyB = fullB + ${kMajorStages};
  // A producer warp waits for its own TMA boxes only.
  Mbarrier* const loadedB = emptyB + ${kMajorStages} + threadIdx.x % ${producers} / 32 * stages;
  const unsigned allKTiles = (k + tileK - 1) / tileK, firstKTile = rank * ((allKTiles + 1) / 2);
  const unsigned kTiles = rank == 0 ? (allKTiles + 1) / 2 : allKTiles - firstKTile;
  if (threadIdx.x == 0) {
    for (unsigned stage = 0; stage < stages; stage++) mbarrierInit(fullA + stage, ${producerWarps});
    for (unsigned stage = 0; stage < ${kMajorStages}; stage++) {
      mbarrierInit(fullB + stage, ${producerWarps});
      mbarrierInit(emptyB + stage, consumers / 32);
    }
    for (unsigned barrier = 0; barrier < ${producerWarps} * stages; barrier++) mbarrierInit(loadedB + barrier, 1);
  }
  fenceMbarrierInit();
  __syncthreads();
  gridDependencyWait();
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  if (threadIdx.x >= consumers) {
    setmaxnregDec<${producerRegisters}>();
    auto loadA = [&](unsigned kTile) {
      if (kTile >= kTiles) return;
      Mbarrier* const barrier = fullA + kTile % stages;
      mbarrierArriveExpectTx(barrier, TileA::bytes / ${producerWarps});
#pragma unroll
      for (unsigned box = warp; box < tileM / 32; box += ${producerWarps}) {
        tmaLoad(stageTiles + kTile % stages * TileA::bytes + box * TileA::boxBytes, a, firstM + box * 32, (firstKTile + kTile) * tileK,
                aBatch == 0 ? 0 : matrix, barrier);
      }
    };
    auto loadB = [&](unsigned kTile) {
      if (kTile >= kTiles) return;
      Mbarrier* const barrier = loadedB + kTile % stages;
      mbarrierArriveExpectTx(barrier, TileB::boxBytes);
      tmaLoad(mnMajorB + kTile % stages * TileB::bytes + warp * TileB::boxBytes, b, firstN + warp * 32, (firstKTile + kTile) * tileK,
              bBatch == 0 ? 0 : matrix, barrier);
    };
    if (lane == 0) {
#pragma unroll 1
      for (unsigned kTile = 0; kTile < stages; kTile++) {
        loadB(kTile);
        loadA(kTile);
      }
    }
    __syncwarp();
    // A thread transposes two blocks of 4 n × 4 k: n from 4 · chunkN on, k from 4 · chunkK and from 4 · (chunkK ^ 4) on. Eight neighbouring
    // lanes load from different banks and store to different banks.
    const unsigned chunkN = lane % 8, chunkK = chunkN ^ lane / 8;
#pragma unroll 1
    for (unsigned kTile = 0; kTile < kTiles; kTile++) {
      float4 rows[2][4];
      mbarrierWait(loadedB + kTile % stages, kTile / stages % 2);
      const unsigned char* const source = mnMajorB + kTile % stages * TileB::bytes + warp * TileB::boxBytes;
#pragma unroll
      for (unsigned i = 0; i < 8; i++)
        rows[i / 4][i % 4] = *reinterpret_cast<const float4*>(source + TileB::swizzledOffset(4 * (chunkK ^ i / 4 * 4) + i % 4, chunkN));
      // TMA has rounded these floats already. Here the volatile conversion forces the loads to complete before the next TMA load overwrites
      // this stage.
#pragma unroll
      for (unsigned i = 0; i < 8; i++) {
        float4& row = rows[i / 4][i % 4];
        row = make_float4(cvtRnaTf32(row.x), cvtRnaTf32(row.y), cvtRnaTf32(row.z), cvtRnaTf32(row.w));
      }
      __syncwarp();
      if (lane == 0) loadB(kTile + stages);
      if (kTile >= ${kMajorStages}) mbarrierWait(emptyB + kTile % ${kMajorStages}, (kTile / ${kMajorStages} - 1) % 2);
      unsigned char* const destination = kMajorB + kTile % ${kMajorStages} * TileB::bytes + warp * TileB::boxBytes;
#pragma unroll
      for (unsigned i = 0; i < 2; i++) {
        auto store = [&](unsigned e, float x, float y, float z, float w) {
          *reinterpret_cast<float4*>(destination + TileB::swizzledOffset(4 * chunkN + e, chunkK ^ i * 4)) = make_float4(x, y, z, w);
        };
        store(0, rows[i][0].x, rows[i][1].x, rows[i][2].x, rows[i][3].x);
        store(1, rows[i][0].y, rows[i][1].y, rows[i][2].y, rows[i][3].y);
        store(2, rows[i][0].z, rows[i][1].z, rows[i][2].z, rows[i][3].z);
        store(3, rows[i][0].w, rows[i][1].w, rows[i][2].w, rows[i][3].w);
      }
      fenceProxyAsync();
      __syncwarp();
      if (lane == 0) {
        mbarrierArrive(fullB + kTile % ${kMajorStages});
        // A consumer that released a stage of B has loaded the same k-tile of A into registers: both stages are empty.
        if (kTile >= ${kMajorStages}) loadA(kTile + stages - ${kMajorStages});
      }
    }
    // All threads of the cluster take part in its barriers, at which the consumers exchange accumulators.
    __syncwarp();
    for (unsigned barrier = 0; barrier < 2; barrier++) {
      clusterArrive();
      clusterWait();
    }
    return;
  }`;

/**
 * A consumer warpgroup has 128 rows, as two wgmmas of 64. A lane's two rows of each are neighbours, loaded as one float2; the chunks are
 * assigned so that half a warp loads from different banks. While the wgmmas of one half of a k-tile run, the other half is loaded.
 */
const consumer = `
  setmaxnregInc<${consumerRegisters}>();
  const unsigned group = lane / 4, member = lane % 4, chunk = warp % 2 * 2 + group / 4 + group / 2 % 2 * 4;
  const unsigned warpM = threadIdx.x / 128 * 128 + warp / 2 * 32;
  const unsigned char* const warpA = stageTiles + warpM / 32 * TileA::boxBytes + group % 2 * 8;
  const unsigned char* const laneA[2] = {warpA + TileA::swizzledOffset(member, chunk), warpA + TileA::swizzledOffset(member + 4, chunk)};
  float acc[2][tileN / 2], firstHalf[2][2][4], secondHalf[2][2][4];
#pragma unroll
  for (unsigned i = 0; i < tileN; i++) {
    acc[i / (tileN / 2)][i % (tileN / 2)] = 0;
    fenceOperand(acc[i / (tileN / 2)][i % (tileN / 2)]);
  }
  auto load = [&](float (&fragment)[2][2][4], unsigned kTile, unsigned kStep) {
    const unsigned offset = kTile % stages * TileA::bytes + kStep * 1024;
#pragma unroll
    for (unsigned i = 0; i < 8; i++) {
      const float2 pair =
          *reinterpret_cast<const float2*>(laneA[i % 2] + offset + i / 4 * (2 * TileA::boxBytes) + i / 2 % 2 * 1024);
      fragment[i / 4][i / 2 % 2][i % 2 * 2] = pair.x;
      fragment[i / 4][i / 2 % 2][i % 2 * 2 + 1] = pair.y;
    }
  };
  auto multiply = [&](const float (&fragment)[2][2][4], unsigned kTile, unsigned kStep) {
    wgmmaFence();
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
      wgmmaRs<tileN>(
          acc[i % 2], fragment[i % 2][i / 2], kMajorB + kTile % ${kMajorStages} * TileB::bytes + TileB::offset(0, kStep + i / 2));
    }
    wgmmaCommit();
  };
#pragma unroll 1
  for (unsigned kTile = 0; kTile < kTiles; kTile++) {
    mbarrierWait(fullA + kTile % stages, kTile / stages % 2);
    load(firstHalf, kTile, 0);
    mbarrierWait(fullB + kTile % ${kMajorStages}, kTile / ${kMajorStages} % 2);
    multiply(firstHalf, kTile, 0);
    // Once the previous k-tile's wgmmas are complete, its stage is empty.
    wgmmaWait<1>();
    __syncwarp();
    if (kTile > 0 && lane == 0) mbarrierArrive(emptyB + (kTile - 1) % ${kMajorStages});
    load(secondHalf, kTile, 2);
    multiply(secondHalf, kTile, 2);
    wgmmaWait<1>();
  }
  wgmmaWait<0>();
#pragma unroll
  for (unsigned i = 0; i < tileN; i++) fenceOperand(acc[i / (tileN / 2)][i % (tileN / 2)]);`;

/**
 * The split-K reduction: each CTA reduces 64 of a warpgroup's 128 rows. It receives the peer's accumulators of these rows in its stages,
 * which neither CTA reads any more. The sum of two floats is the same in either order.
 */
const splitKReduction = `
  auto kept = [&](unsigned e) { return rank == 0 ? acc[0][e] : acc[1][e]; };
  auto sent = [&](unsigned e) { return rank == 0 ? acc[1][e] : acc[0][e]; };
  clusterArrive();
  clusterWait();
  float4* const received = reinterpret_cast<float4*>(stageTiles) + threadIdx.x;
  float4* const peer = mapaShared(received, rank ^ 1);
#pragma unroll
  for (unsigned e = 0; e < tileN / 2; e += 4)
    peer[e / 4 * consumers] = make_float4(sent(e), sent(e + 1), sent(e + 2), sent(e + 3));
  clusterArrive();
  clusterWait();
  const int row = firstM + (int)(warpM + 64 * rank + 4 * chunk + group % 2 * 2);
  float* const result = c + matrix * cBatch + (long long)row * cStride + firstN + 2 * member;
#pragma unroll
  for (unsigned e = 0; e < tileN / 2; e += 4) {
    if (firstN + (int)(2 * e) >= n) break;
    const float4 other = received[e / 4 * consumers];
    if (row < m) *reinterpret_cast<float2*>(result + 2 * e) = make_float2(kept(e) + other.x, kept(e + 1) + other.y);
    if (row + 1 < m)
      *reinterpret_cast<float2*>(result + cStride + 2 * e) = make_float2(kept(e + 2) + other.z, kept(e + 3) + other.w);
  }`;

export const rsMainloop = `${producer}\n${consumer}\n${splitKReduction}`;
