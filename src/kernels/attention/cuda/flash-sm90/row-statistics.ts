/**
 * What the backward kernels on `wgmma` load besides their tiles: the row statistics, and the bits of the probabilities that dropout keeps. The
 * statistics of a query's row are log2 of the sum of its exponentials, and its delta: the dot product of its result and the result's gradient.
 */

import { declarePairs } from "../parameters.js";
import type { Sm90BackwardConfig } from "./config.js";
import { drawKept } from "./declarations.js";

/** C++: the visited head of side "columns". */
export function queryHead({ isGrouped }: Sm90BackwardConfig): string {
  return isGrouped ? "head * groupHeads + headOfGroup" : "head";
}

/** C++: `kept` of the visited tile, while its products are computed. */
export function keepInLoop({ dropout, side }: Pick<Sm90BackwardConfig, "dropout" | "side">): string {
  if (dropout === "none") return "";
  if (dropout === "draws") return drawKept(side, "stayed - group", "visit");
  if (side === "rows") {
    return `      kept = nextKept;
      nextKept.load(dropout, stayed - group, visit + tileN);`;
  }
  return `
#pragma unroll
      for (unsigned i = 0; i < tileN / keptWidth; i++) {
        kept.words[i] = transposeKept<keptWidth>([&](unsigned block, unsigned source) {
          const unsigned word = (warpgroup * (tileN / 16) + i * (keptWidth / 16) + block) * 32 + source;
          return (unsigned)keptTiles[at.stage * keptBytes + 4 * word + threadIdx.x % 128 / 32];
        });
      }`;
}

/** C++: the bits of the first tile; those of the next are loaded while a tile is computed. */
export const prefetchKept = `
    Kept nextKept;
    nextKept.load(dropout, stayed - group, visit);`;

/**
 * C++: a thread copies the stored bits of visited queries and each warpgroup's keys. Those of 16 queries and 64 keys are 128 bytes; blocks of
 * neighbouring queries are neighbours.
 */
const copyKept = (eachHead: string): string => `
    if (threadIdx.x == consumers + 32) {
      const unsigned groups = warpgroups == 1 ? 1 : (columns - firstStay + 63) / 64, copies = groups < warpgroups ? groups : warpgroups;
      const unsigned groupBytes = (rows + 15) / 16 * 128, pairBytes = (columns + 63) / 64 * groupBytes;
      const unsigned char* from = keptBits + (unsigned long long)(pairNumber * groupHeads) * pairBytes + firstStay / 64 * groupBytes;
      Position at;
${eachHead} {
#pragma unroll 1
      for (int visit = firstVisit; visit < endVisit; visit += tileN, at.advance()) {
        const unsigned blocks = (rows - visit + 15) / 16, bytes = 128 * (blocks < tileN / 16 ? blocks : tileN / 16);
        mbarrierWait(empty + at.stage, at.parity ^ 1);
        mbarrierArriveExpectTx(full + at.stage, copies * bytes);
#pragma unroll
        for (unsigned i = 0; i < warpgroups; i++) {
          if (i < copies)
            cpAsyncBulk(keptTiles + at.stage * keptBytes + i * (tileN * 8), from + (i * groupBytes + visit * 8), bytes, full + at.stage);
        }
      }
      from += pairBytes;
      }
    }`;

/**
 * The warps of the producer warpgroup without another task load the row statistics of visited queries in turns, so that the latencies of
 * their loads overlap. The loads don't wait for a stage. The statistics of queries that don't exist make their probabilities 0.
 *
 * No more warps than stages take turns. A wait names only the parity of a phase, so it ends too early if the stage is two phases behind. A
 * warp that has filled a stage knows that the visit `stages` before is complete. Its next visit is at most `stages` later, so the stage of
 * that visit is at most one phase behind.
 */
export function loadVisitedStatistics(config: Sm90BackwardConfig, eachHead: string): string {
  const isCopied = config.dropout === "loads";
  const firstWarp = isCopied ? 2 : 1;
  return `${isCopied ? copyKept(eachHead) : ""}
    constexpr unsigned firstLoader = consumers + ${32 * firstWarp}, loadingWarps = ${Math.min(4 - firstWarp, config.tile.stages)};
    if (threadIdx.x >= firstLoader && threadIdx.x < firstLoader + 32 * loadingWarps) {
      const unsigned lane = threadIdx.x % 32;
      // Visits until this warp's next one.
      unsigned turn = (threadIdx.x - firstLoader) / 32;
      Position at;
${eachHead} {
      const long long firstRow = (batch * heads + ${queryHead(config)}) * rows;
#pragma unroll 1
      for (int visit = firstVisit; visit < endVisit; visit += tileN, at.advance()) {
        if (turn-- != 0) continue;
        turn = loadingWarps - 1;
        float2 visited[tileN / 32];
#pragma unroll
        for (unsigned i = 0; i < tileN / 32; i++) {
          const int row = visit + (int)(32 * i + lane);
          visited[i] = make_float2(__uint_as_float(0x7f800000u), 0);
          if (row < rows) visited[i] = make_float2(statistics[firstRow + row], deltas[firstRow + row]);
        }
        mbarrierWait(empty + at.stage, at.parity ^ 1);
#pragma unroll
        for (unsigned i = 0; i < tileN / 32; i++) rowStatistics[at.stage * tileN + 32 * i + lane] = visited[i];
        mbarrierArrive(full + at.stage);
      }
      }
    }`;
}

/**
 * The row statistics of a lane's own rows; four lanes share a row. The deltas are stored for side "columns". The last row stands in for
 * rows that don't exist, whose results are not stored, so that no branch separates the loads.
 */
export const loadOwnStatistics = (widen: string): string => `
    float statistic[2], delta[2] = {0, 0};
    const long long firstRow = (batch * heads + head) * rows;
${declarePairs("unsigned short", "out")}
    const unsigned short* const outGradientPair = outGradientRows + batch * outGradientBatch + head * outGradientHead;
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
      const long long row = stayed + 8 * (int)half < rows ? stayed + 8 * (int)half : rows - 1;
      statistic[half] = statistics[firstRow + row];
#pragma unroll
      for (unsigned step = 0; step < (valueWidth + 31) / 32; step++) {
        const unsigned d = 32 * step + 8 * member;
        if (valueWidth % 32 != 0 && d >= valueWidth) continue;
        const uint4 first = *reinterpret_cast<const uint4*>(outGradientPair + row * outGradientRow + d);
        const uint4 second = *reinterpret_cast<const uint4*>(outPair + row * outRow + d);
        const unsigned a[4] = {first.x, first.y, first.z, first.w}, b[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
        for (unsigned i = 0; i < 8; i++) {
          const unsigned shift = 16 * (i % 2);
          const float product = ${widen}((unsigned short)(a[i / 2] >> shift)) * ${widen}((unsigned short)(b[i / 2] >> shift));
          delta[half] += product;
        }
      }
    }
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
      delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 1);
      delta[half] += __shfl_xor_sync(0xffffffffu, delta[half], 2);
      const int row = stayed + 8 * (int)half;
      if (member == 0 && row < rows) deltas[firstRow + row] = delta[half];
    }`;
