/**
 * The backward pass of flash attention on `wgmma` in one kernel, for sequences whose gradients of queries fit in shared memory. A block has
 * one (batch, head). Its consumer warpgroup goes through the tiles of 64 keys, and for each through the tiles of 64 queries that see it. So
 * the scores, their exponentials and their gradients are computed once, and not once for each side.
 *
 * Gradients of keys and values stay in registers until all queries are visited. Those of queries are sums over keys: shared memory has them in
 * f32, each element in the thread that adds to it. The last tile of keys that a query sees completes its gradient. All sums have one order.
 *
 * The formulas are those of `backward.ts`. The gradients of the transposed scores are an A operand as they are for dK, and go through shared
 * memory for dQ. Two warps compute the deltas of all queries while the first tile of keys is multiplied.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import { fenceProxyAsync } from "../../../codegen/cuda/intrinsics/wgmma.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { declareDropoutOfPair, dropoutMemory, dropoutNumbers, dropoutPointers } from "../flash/dropout.js";
import { declarePairs, strideParameters } from "../parameters.js";
import { hideScores } from "./backward.js";
import { registersOf, type Sm90FlashConfig, type Sm90FlashTile, threadsOf, tileBytes } from "./config.js";
import { declareSm90Flash } from "./declarations.js";
import { exponentOf, maskCode, maskParameters } from "./masks.js";
import { inputMap, inputParameters } from "./operands.js";
import { keepInLoop } from "./row-statistics.js";

/** Rows of all tiles. */
export const wholeTileRows = 64;

/** Products in flight keep their stage until those of the next tile are issued, so that tile needs another one. */
const minWholeStages = 2;

export interface Sm90WholeTile extends Sm90FlashTile {
  readonly warpgroups: 1;
  readonly tileN: 64;
  /** The tiles of queries that shared memory has room for. */
  readonly queryTiles: number;
}

/** The producer warpgroup computes deltas, which needs more registers than loads. */
export function wholeRegisters(tile: Sm90WholeTile): { consumer: number; producer: number } {
  return registersOf(tile, 40);
}

export interface Sm90WholeConfig extends Sm90FlashConfig {
  readonly tile: Sm90WholeTile;
  readonly isGrouped: false;
}

/** The arguments, in order. */
export function sm90WholeParameters({
  element,
  access,
  dropout,
  mask,
}: Pick<Sm90WholeConfig, "element" | "access" | "dropout" | "mask">): Readonly<Record<string, Parameter>> {
  return {
    ...inputParameters("query", "key", "value", "outGradient", "out"),
    ...maskParameters(mask),
    ...dropoutMemory(dropout),
    ...{ statistics: "in", queryGradient: access, keyGradient: access, valueGradient: access },
    ...{ heads: "u32", rows: "i32", columns: "i32" },
    ...strideParameters("queryGradient", "keyGradient", "valueGradient"),
    scale: "f32",
    ...dropoutNumbers(dropout, element),
  };
}

/** Bytes of shared memory, part by part, in their order. */
function layOutShared({ tile, width, valueWidth, isCausal, dropout }: Sm90WholeConfig) {
  const { stages, queryTiles } = tile;
  const [ofWidth, ofValues] = [tileBytes(wholeTileRows, width), tileBytes(wholeTileRows, valueWidth)];
  return {
    keyAndValue: ofWidth + ofValues,
    // The gradients of scores, then results on their way to memory.
    scores: Math.max(tileBytes(wholeTileRows, wholeTileRows), ofWidth, ofValues),
    stages: stages * (ofWidth + ofValues),
    // First the results of the forward pass. The first causal tile of queries sees one tile of keys, so its gradient stays in registers.
    sum: Math.max(wholeTileRows * width * 4, ofValues),
    sums: queryTiles - (isCausal ? 1 : 0),
    statistics: queryTiles * wholeTileRows * 8,
    kept: dropout === "loads" ? (wholeTileRows * wholeTileRows) / 8 : 0,
    barriers: 8 * (2 + 2 * stages + 2 * queryTiles),
  };
}

export function sm90WholeBytes(config: Sm90WholeConfig): number {
  const { keyAndValue, scores, stages, sum, sums, statistics, kept, barriers } = layOutShared(config);
  return keyAndValue + scores + stages + sum * sums + statistics + kept * config.tile.stages + barriers;
}

export function sm90WholeKernel(config: Sm90WholeConfig): KernelSource {
  const { element, tile, isCausal, dropout } = config;
  if (tile.stages < minWholeStages)
    throw new Error(`The tile has ${tile.stages} stages, and needs ${minWholeStages}.`);
  const shared = layOutShared(config);
  const sharedBytes = sm90WholeBytes(config);
  const { consumer, producer } = wholeRegisters(tile);
  const { widen = "" } = elementTypes[element];
  const drops = dropout !== "none";
  const side = "columns";
  const masks = maskCode(config, side, { head: "head", stayed: "stayed", visit: "visit" });
  const map = (name: string, count: string) => inputMap(name, element, count, wholeTileRows);
  const gradient = "tileStatistics[i / 4 * 8 + i % 2].y";
  return cudaKernel({
    name: `attention.flash.sm90.backward.whole.${element}`,
    parameters: sm90WholeParameters(config),
    ...{
      elements: "float",
      requiredCapability: "9.0",
      threads: threadsOf(tile),
      blocksPerSm: tile.blocksPerSm,
      sharedBytes,
    },
    pointers: {
      ...Object.fromEntries(
        ["queryGradient", "keyGradient", "valueGradient"].map((name) => [name, "unsigned short"]),
      ),
      ...dropoutPointers,
    },
    maps: {
      query: map("query", "rows"),
      key: map("key", "columns"),
      value: map("value", "columns"),
      outGradient: map("outGradient", "rows"),
      out: map("out", "rows"),
    },
    declarations: `${widen ? preludeOf(new Set([widen])) : ""}${declareSm90Flash(config, side)}
${onlyOnDevice(fenceProxyAsync)}${multiplyTransposed}`,
    body: `
  swizzledSharedMemory(keyTile, ${sharedBytes});
  typedef Tile<64, width> Queries;
  typedef Tile<64, valueWidth> Values;
  constexpr unsigned stageBytes = Queries::bytes + Values::bytes, sumBytes = ${shared.sum}, queryTiles = ${tile.queryTiles};
  [[maybe_unused]] constexpr unsigned keptBytes = ${shared.kept};
  unsigned char* const valueTile = keyTile + Queries::bytes;
  unsigned char* const scoreTile = keyTile + ${shared.keyAndValue};
  unsigned char* const stageTiles = scoreTile + ${shared.scores};
  unsigned char* const sums = stageTiles + stages * stageBytes;
  float2* const rowStatistics = reinterpret_cast<float2*>(sums + ${shared.sums} * sumBytes);
  [[maybe_unused]] unsigned char* const keptTiles = reinterpret_cast<unsigned char*>(rowStatistics + 64 * queryTiles);
  Mbarrier* const stayFull = reinterpret_cast<Mbarrier*>(keptTiles + stages * keptBytes);
  Mbarrier *const stayEmpty = stayFull + 1, *const full = stayEmpty + 1, *const empty = full + stages;
  Mbarrier *const outFull = empty + stages, *const statisticsFull = outFull + queryTiles;
  if (threadIdx.x == 0) {
    mbarrierInit(stayFull, 1);
    mbarrierInit(stayEmpty, consumers / 32);
    for (unsigned stage = 0; stage < stages; stage++) {
      mbarrierInit(full + stage, 1);
      mbarrierInit(empty + stage, consumers / 32);
    }
    for (unsigned i = 0; i < queryTiles; i++) {
      mbarrierInit(outFull + i, 1);
      mbarrierInit(statisticsFull + i, 64);
    }
  }
  fenceMbarrierInit();
  __syncthreads();
  const unsigned pairNumber = blockIdx.x;
  const long long batch = pairNumber / heads, head = pairNumber % heads;
  // The sums of a tile of queries, or the results of the forward pass before.
  auto sumOf = [&](int visit) { return sums + (visit / 64${isCausal ? " - 1" : ""}) * sumBytes; };
  auto outOf = [&](int visit) { return ${isCausal ? "visit == 0 ? scoreTile : sumOf(visit)" : "sumOf(visit)"}; };

  if (threadIdx.x >= consumers) {
    setmaxnregDec<${producer}>();
    if (threadIdx.x == consumers) {${loadVisits(config)}
    } else if (threadIdx.x == consumers + 32) {${loadStays}
    } else if (threadIdx.x >= consumers + 64) {${computeStatistics(widen)}
    }
  } else {
    setmaxnregInc<${consumer}>();
    [[maybe_unused]] constexpr unsigned warpgroup = 0;
    const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    const float scale2 = scale * 1.44269504f;
    [[maybe_unused]] const float lowest = __uint_as_float(0xff800000u);
    auto release = [&](unsigned stage) {
      if (lane == 0) mbarrierArrive(empty + stage);
    };
    const float factors[2] = {scale, scale}, valueFactors[2] = {${drops ? "dropoutScale, dropoutScale" : "1, 1"}};
${declarePairs("unsigned short", "queryGradient", "keyGradient", "valueGradient")}
${dropout === "loads" ? "" : declareDropoutOfPair(dropout, "pairNumber")}
${drops ? "    Kept kept;" : ""}
    Position at;
    unsigned stayParity = 0;
#pragma unroll 1
    for (int stay = 0; stay < columns; stay += 64, stayParity ^= 1) {
      [[maybe_unused]] const int firstOfGroup = stay;
      [[maybe_unused]] const int stayed = stay + (int)(threadIdx.x / 32 * 16 + group);
      float scores[tileN / 2], gradients[tileN / 2], queryResult[width / 2], keyResult[width / 2], valueResult[valueWidth / 2];
      unsigned packed[tileN / 16][4], packedPowers[tileN / 16][4];
${masks.declare}
#pragma unroll
      for (unsigned i = 0; i < width / 2; i++) keyResult[i] = 0;
#pragma unroll
      for (unsigned i = 0; i < valueWidth / 2; i++) valueResult[i] = 0;
      // Adds to the gradients of visited queries, or stores them.
      auto finish = [&](int visit) {
        // All warps have read the gradients of the scores.
        namedBarrierSync(1, consumers);
        float4* const sum = reinterpret_cast<float4*>(sumOf(visit)) + threadIdx.x;
        const bool isLast = ${isCausal ? "visit == stay || " : ""}stay + 64 >= columns;
        float total[width / 2];
#pragma unroll
        for (unsigned i = 0; i < width / 8; i++) {
          const float4 four = stay > 0 ? sum[consumers * i] : make_float4(0, 0, 0, 0);
          total[4 * i] = queryResult[4 * i] + four.x;
          total[4 * i + 1] = queryResult[4 * i + 1] + four.y;
          total[4 * i + 2] = queryResult[4 * i + 2] + four.z;
          total[4 * i + 3] = queryResult[4 * i + 3] + four.w;
          if (!isLast) sum[consumers * i] = make_float4(total[4 * i], total[4 * i + 1], total[4 * i + 2], total[4 * i + 3]);
        }
        if (isLast) {
          storeRows<width>(total, factors, scoreTile, queryGradientPair + (long long)visit * queryGradientRow, queryGradientRow, rows - visit);
          __syncwarp();
        }
      };
      mbarrierWait(stayFull, stayParity);
      unsigned lastStage = stages;
      const int firstVisit = ${isCausal ? "stay" : "0"};
#pragma unroll 1
      for (int visit = firstVisit; visit < rows; visit += tileN) {
        const unsigned char* const stageTile = stageTiles + at.stage * stageBytes;
        mbarrierWait(full + at.stage, at.parity);
        fenceAll(scores);
        fenceAll(gradients);
        wgmmaFence();
        multiply<width, tileN>(scores, keyTile, stageTile);
        wgmmaCommit();
        multiply<valueWidth, tileN>(gradients, valueTile, stageTile + Queries::bytes);
        wgmmaCommit();
${masks.fetch}
${keepInLoop({ dropout, side })}
${masks.store}
        wgmmaWait<1>();
        fenceAll(scores);
        fenceAll(keyResult);
        fenceAll(valueResult);
        if (lastStage < stages) release(lastStage);
        lastStage = at.stage;
${masks.add}
${hideScores(false, isCausal)}
        if (stay + 64 > columns) {
#pragma unroll
          for (unsigned i = 0; i < tileN / 2; i++) scores[i] = stayed + 8 * (int)(i / 2 % 2) < columns ? scores[i] : lowest;
        }
        mbarrierWait(statisticsFull + visit / 64, 0);
        const float2* const tileStatistics = rowStatistics + visit + member * 2;
#pragma unroll
        for (unsigned i = 0; i < tileN / 2; i++) {
          scores[i] = ex2Approx(${exponentOf(config, "scores[i]", "tileStatistics[i / 4 * 8 + i % 2].x")});
        }
        pack<tileN>(packedPowers, scores${drops ? ", kept" : ""});
        wgmmaWait<0>();
        fenceAll(gradients);
        wgmmaFence();
        multiplyPacked<tileN, valueWidth>(valueResult, packedPowers, stageTile + Queries::bytes);
        wgmmaCommit();
#pragma unroll
        for (unsigned i = 0; i < tileN / 2; i++) {
          gradients[i] = scores[i] * ${drops ? `fmaf(kept.has(i) ? gradients[i] : 0, dropoutScale, -${gradient})` : `(gradients[i] - ${gradient})`};
        }
        pack<tileN>(packed, gradients);
        storePacked(scoreTile, packed);
        fenceProxyAsync();
        namedBarrierSync(1, consumers);
        wgmmaFence();
        multiplyTransposed<width>(queryResult, scoreTile, keyTile);
        wgmmaCommit();
        multiplyPacked<tileN, width>(keyResult, packed, stageTile);
        wgmmaCommit();
        wgmmaWait<1>();
        fenceAll(queryResult);
        finish(visit);
        at.advance();
      }
      wgmmaWait<0>();
      fenceAll(keyResult);
      fenceAll(valueResult);
      if (lane == 0) mbarrierArrive(stayEmpty);
      if (lastStage < stages) release(lastStage);
      storeRows<width>(keyResult, factors, scoreTile, keyGradientPair + (long long)stay * keyGradientRow, keyGradientRow, columns - stay);
      __syncwarp();
      storeRows<valueWidth>(valueResult, valueFactors, scoreTile, valueGradientPair + (long long)stay * valueGradientRow, valueGradientRow, columns - stay);
      __syncwarp();
    }
  }`,
  });
}

const multiplyTransposed = `
// acc[64, width] = Σ_n a[n, 64]ᵀ · b[n, width] with n = 64. Asynchronous.
template <unsigned width>
static __device__ __forceinline__ void multiplyTransposed(float (&acc)[width / 2], const unsigned char* a, const unsigned char* b) {
  const SmemOperand first = smemOperand(a, Tile<64, 64>::boxBytes), second = smemOperand(b, Tile<64, width>::boxBytes);
#pragma unroll
  for (unsigned k = 0; k < 4; k++)
    wgmmaSs<Element, width, false, false>(acc, advance(first, k * (16 * 128)), advance(second, k * (16 * 128)), k > 0);
}

// Stores an A operand as a tile of 64 × 64 elements. A warp has 16 rows.
static __device__ __forceinline__ void storePacked(unsigned char* tile, const unsigned (&a)[4][4]) {
  const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4, firstRow = threadIdx.x % 128 / 32 * 16;
#pragma unroll
  for (unsigned i = 0; i < 16; i++) {
    const unsigned row = firstRow + i % 2 * 8 + group, chunk = i / 4 * 2 + i % 4 / 2;
    *reinterpret_cast<unsigned*>(tile + row * 128 + ((chunk ^ row % 8) << 4) + 4 * member) = a[i / 4][i % 4];
  }
}`;

/** C++: a thread loads the visited tiles of queries and gradients, and copies their dropout bits. */
const loadVisits = ({ isCausal, dropout }: Sm90WholeConfig): string => `
      const int queryMatrix = queryBatch == 0 ? 0 : batch, outGradientMatrix = outGradientBatch == 0 ? 0 : batch;
${
  dropout === "loads"
    ? `      const unsigned groupBytes = (rows + 15) / 16 * 128, pairBytes = (columns + 63) / 64 * groupBytes;
      const unsigned char* from = keptBits + (unsigned long long)pairNumber * pairBytes;`
    : ""
}
      Position at;
#pragma unroll 1
      for (int stay = 0; stay < columns; stay += 64) {
#pragma unroll 1
        for (int visit = ${isCausal ? "stay" : "0"}; visit < rows; visit += tileN, at.advance()) {
          unsigned char* const stageTile = stageTiles + at.stage * stageBytes;
          Mbarrier* const barrier = full + at.stage;
          // A fresh mbarrier has completed the phase before its first.
          mbarrierWait(empty + at.stage, at.parity ^ 1);
${
  dropout === "loads"
    ? `          const unsigned blocks = (rows - visit + 15) / 16, bytes = 128 * (blocks < tileN / 16 ? blocks : tileN / 16);
          mbarrierArriveExpectTx(barrier, stageBytes + bytes);
          cpAsyncBulk(keptTiles + at.stage * keptBytes, from + visit * 8, bytes, barrier);`
    : "          mbarrierArriveExpectTx(barrier, stageBytes);"
}
          Queries::load(stageTile, &query, head * queryHead, visit, queryMatrix, barrier);
          Values::load(stageTile + Queries::bytes, &outGradient, head * outGradientHead, visit, outGradientMatrix, barrier);
        }
${dropout === "loads" ? "        from += groupBytes;" : ""}
      }`;

/** C++: a thread loads the tiles of keys and values, and the results of the forward pass. */
const loadStays = `
      const int keyMatrix = keyBatch == 0 ? 0 : batch, valueMatrix = valueBatch == 0 ? 0 : batch, outMatrix = outBatch == 0 ? 0 : batch;
      unsigned parity = 1;
#pragma unroll 1
      for (int stay = 0; stay < columns; stay += 64, parity ^= 1) {
        mbarrierWait(stayEmpty, parity);
        mbarrierArriveExpectTx(stayFull, Queries::bytes + Values::bytes);
        Queries::load(keyTile, &key, head * keyHead, stay, keyMatrix, stayFull);
        Values::load(valueTile, &value, head * valueHead, stay, valueMatrix, stayFull);
        if (stay > 0) continue;
#pragma unroll 1
        for (int visit = 0; visit < rows; visit += 64) {
          mbarrierArriveExpectTx(outFull + visit / 64, Values::bytes);
          Values::load(outOf(visit), &out, head * outHead, visit, outMatrix, outFull + visit / 64);
        }
      }`;

/**
 * C++: two warps load the row statistics of queries and compute their deltas, once, a lane for each row. The statistics of queries that don't
 * exist make their probabilities 0. The consumers wait for them, and so keep the stage until it is read.
 */
const computeStatistics = (widen: string): string => `
      const unsigned row = threadIdx.x - (consumers + 64);
      const long long firstRow = (batch * heads + head) * rows;
      Position at;
#pragma unroll 1
      for (int visit = 0; visit < rows; visit += 64, at.advance()) {
        const int own = visit + (int)row;
        const float statistic = own < rows ? statistics[firstRow + own] : __uint_as_float(0x7f800000u);
        mbarrierWait(outFull + visit / 64, 0);
        mbarrierWait(full + at.stage, at.parity);
        const unsigned char* const resultRow = outOf(visit) + row * 128;
        const unsigned char* const gradientRow = stageTiles + at.stage * stageBytes + Queries::bytes + row * 128;
        float delta = 0;
#pragma unroll
        for (unsigned chunk = 0; chunk < valueWidth / 8; chunk++) {
          const unsigned offset = chunk / 8 * Values::boxBytes + ((chunk % 8 ^ row % 8) << 4);
          const uint4 first = *reinterpret_cast<const uint4*>(gradientRow + offset), second = *reinterpret_cast<const uint4*>(resultRow + offset);
          const unsigned a[4] = {first.x, first.y, first.z, first.w}, b[4] = {second.x, second.y, second.z, second.w};
#pragma unroll
          for (unsigned i = 0; i < 8; i++) {
            const unsigned shift = 16 * (i % 2);
            delta = fmaf(${widen}((unsigned short)(a[i / 2] >> shift)), ${widen}((unsigned short)(b[i / 2] >> shift)), delta);
          }
        }
        rowStatistics[visit + row] = make_float2(statistic, delta);
        mbarrierArrive(statisticsFull + visit / 64);
      }`;
