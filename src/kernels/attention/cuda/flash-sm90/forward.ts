/**
 * The forward pass of flash attention on `wgmma`. A warpgroup has 64 queries, and visits the keys and values from the last visible tile to
 * the first. The product of the next tile's scores is issued together with that of the present tile's values, so that tensor cores work
 * while the exponentials of a tile are computed.
 *
 * Scores are scaled inside of the power of 2, which needs a positive scale. Exponents are relative to a base of the row: the maximum in its
 * first tile. The base rises, and the result is scaled, only if a later score is more than `headroom` above it. So most tiles need neither
 * shuffles nor a scaling, and powers stay small enough for all element types. A row keeps log2 of the sum of its exponentials.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { lg2Approx, rcpApprox } from "../../../codegen/cuda/intrinsics/fast-math.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import { declareDropoutOfPair, dropoutMemory, dropoutNumbers, dropoutPointers } from "../flash/dropout.js";
import { declarePairs } from "../parameters.js";
import {
  registersOf,
  type Sm90FlashConfig,
  type Sm90FlashTile,
  threadsOf,
  tileBytes,
  tileM,
  warpgroupRows,
} from "./config.js";
import { declareSm90Flash, declareWork, drawKept, visibleSteps } from "./declarations.js";
import { exponentOf, maskBytes, maskCode, maskParameters } from "./masks.js";
import { inputMap, inputParameters, sizeParameters } from "./operands.js";

/** Powers of 2 below this one keep their precision in bf16 and f16, and their sums in f32. */
const headroom = 8;

/** The arguments, in order. */
export function sm90ForwardParameters({
  element,
  access,
  dropout,
  mask,
  isGrouped,
}: Pick<Sm90FlashConfig, "element" | "access" | "dropout" | "mask" | "isGrouped">): Readonly<
  Record<string, Parameter>
> {
  return {
    ...inputParameters("query", "key", "value"),
    ...maskParameters(mask),
    ...dropoutMemory(dropout),
    out: access,
    statistics: access,
    ...sizeParameters(isGrouped),
    outBatch: "u32",
    outHead: "u32",
    outRow: "u32",
    scale: "f32",
    ...dropoutNumbers(dropout, element),
  };
}

/** Queries, which become the staging of the result, the stages of keys and values, masks, and mbarriers. */
export function sm90ForwardBytes(config: Sm90FlashConfig): number {
  const { tile, width, valueWidth } = config;
  const { stages, tileN } = tile;
  const queryBytes = tileBytes(tileM(tile), Math.max(width, valueWidth));
  const stageBytes = tileBytes(tileN, width) + tileBytes(tileN, valueWidth);
  return queryBytes + stages * stageBytes + maskBytes(config, "rows") + 8 * (1 + 4 * stages);
}

export function sm90ForwardKernel(config: Sm90FlashConfig): KernelSource {
  const { element, tile, isCausal, width, valueWidth, dropout } = config;
  const sharedBytes = sm90ForwardBytes(config);
  const maskTileBytes = maskBytes(config, "rows");
  // Without groups both are equal. The compiler cannot know that, and would divide in every load.
  const keyHead = config.isGrouped ? "head / groupHeads" : "head";
  const drops = dropout !== "none";
  const hasMask = config.mask !== "none";
  const masks = maskCode(config, "rows", { head: "head", stayed: "row", visit: "visit * tileN" });
  // While the products of the tile are computed.
  const draw = (lastRow?: string): string =>
    drops ? drawKept("rows", "firstOfWarp", "visit * tileN", lastRow) : "";
  return cudaKernel({
    ...{ name: `attention.flash.sm90.${element}`, parameters: sm90ForwardParameters(config) },
    ...{ elements: "float", requiredCapability: "9.0" },
    pointers: { out: "unsigned short", ...dropoutPointers },
    ...{ threads: threadsOf(tile), blocksPerSm: tile.blocksPerSm, sharedBytes },
    maps: {
      query: inputMap("query", element, "rows", warpgroupRows),
      key: inputMap("key", element, "columns", tile.tileN),
      value: inputMap("value", element, "columns", tile.tileN),
    },
    declarations: `${declareSm90Flash(config, "rows")}${drops && isCausal ? visibleSteps : ""}\n${onlyOnDevice(`${lg2Approx}\n${rcpApprox}`)}`,
    body: `
  swizzledSharedMemory(queries, ${sharedBytes});
  typedef Tile<64, width> QueryTile;
  typedef Tile<tileN, width> KeyTile;
  typedef Tile<tileN, valueWidth> ValueTile;
  constexpr unsigned queryBytes = ${tileBytes(warpgroupRows, Math.max(width, valueWidth))};
  unsigned char* const keys = queries + warpgroups * queryBytes;
  unsigned char* const values = keys + stages * KeyTile::bytes;
${maskTileBytes ? "  float* const maskTiles = reinterpret_cast<float*>(values + stages * ValueTile::bytes);" : ""}
  Mbarrier* const queryFull = reinterpret_cast<Mbarrier*>(values + stages * ValueTile::bytes${maskTileBytes ? ` + ${maskTileBytes}` : ""});
  Mbarrier *const keyFull = queryFull + 1, *const keyEmpty = keyFull + stages, *const valueFull = keyEmpty + stages;
  Mbarrier* const valueEmpty = valueFull + stages;
  if (threadIdx.x == 0) {
    mbarrierInit(queryFull, 1);
    for (unsigned stage = 0; stage < stages; stage++) {
      mbarrierInit(keyFull + stage, 1);
      mbarrierInit(valueFull + stage, 1);
      mbarrierInit(keyEmpty + stage, consumers / 32);
      mbarrierInit(valueEmpty + stage, consumers / 32);
    }
  }
  fenceMbarrierInit();
  __syncthreads();
${declareWork(true)}
  const int firstRow = tile * tileM;
  const int endColumn = ${isCausal ? "firstRow + (int)tileM < columns ? firstRow + (int)tileM : columns" : "columns"};
  const unsigned visits = (endColumn + tileN - 1) / tileN;

  auto loadQueries = [&] {
    mbarrierArriveExpectTx(queryFull, warpgroups * QueryTile::bytes);
#pragma unroll 1
    for (unsigned i = 0; i < warpgroups; i++)
      QueryTile::load(queries + i * queryBytes, &query, head * queryHead, firstRow + 64 * i, queryBatch == 0 ? 0 : batch, queryFull);
  };
  auto loadKeys = [&](unsigned stage, unsigned visit) {
    mbarrierArriveExpectTx(keyFull + stage, KeyTile::bytes);
    KeyTile::load(keys + stage * KeyTile::bytes, &key, ${keyHead} * keyHead, visit * tileN, keyBatch == 0 ? 0 : batch, keyFull + stage);
  };
  auto loadValues = [&](unsigned stage, unsigned visit) {
    mbarrierArriveExpectTx(valueFull + stage, ValueTile::bytes);
    ValueTile::load(values + stage * ValueTile::bytes, &value, ${keyHead} * valueHead, visit * tileN, valueBatch == 0 ? 0 : batch, valueFull + stage);
  };

${tile.loadsOwnTiles ? firstLoads : producerLoop(tile)}
    // The shuffle tells the compiler that the threads of a warp agree.
    const unsigned warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), warpgroup = warp / 4;
    const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    const int firstOfGroup = firstRow + 64 * (int)warpgroup, firstOfWarp = firstRow + 16 * (int)warp, row = firstOfWarp + (int)group;
    const unsigned char* const myQueries = queries + warpgroup * queryBytes;
    const float scale2 = scale * 1.44269504f, lowest = __uint_as_float(0xff800000u);
    auto release = [&](Mbarrier* empty) {
      if (lane == 0) mbarrierArrive(empty);
    };
    float result[valueWidth / 2], scores[tileN / 2], base[2] = {0, 0}, tileMax[2], rowTotal[2] = {0, 0}, rescale[2] = {1, 1};
    bool isRaised;
    unsigned probabilities[tileN / 16][4];
${drops ? `${declareDropoutOfPair(dropout, "pairNumber")}\n    Kept kept;` : ""}
#pragma unroll
    for (unsigned i = 0; i < valueWidth / 2; i++) result[i] = 0;
${masks.declare}
    // Scores of a tile to powers of 2, relative to the row's base.
    auto toPowers = [&](int firstColumn, bool isFirst) {
${hasMask ? "      addMask(firstColumn);" : ""}
      // Tiles and warpgroups begin at multiples of 64, so only the first tile has hidden columns.
      if (isFirst && (${isCausal ? "firstColumn + (int)tileN > firstOfGroup + 1 || " : ""}firstColumn + (int)tileN > columns)) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          const int visible = ${isCausal ? "row + 8 * (int)half + 1 < columns ? row + 8 * (int)half + 1 : columns" : "columns"};
          const int limit = visible - firstColumn - 2 * (int)member;
#pragma unroll
          for (int i = 0; i < (int)tileN / 4; i++) {
            float& score = scores[i / 2 * 4 + 2 * half + i % 2];
            score = i / 2 * 8 + i % 2 < limit ? score : lowest;
          }
        }
      }
#pragma unroll
      for (unsigned half = 0; half < 2; half++) {
        float highest[2] = {scores[2 * half], scores[2 * half + 1]};
#pragma unroll
        for (unsigned i = 2; i < tileN / 4; i++) highest[i % 2] = fmaxf(highest[i % 2], scores[i / 2 * 4 + 2 * half + i % 2]);
        // Finite, so that the power of a hidden score is 0.
        tileMax[half] = fmaxf(fmaxf(highest[0], highest[1])${hasMask ? "" : " * scale2"}, -3e38f);
      }
      isRaised = isFirst || __any_sync(0xffffffffu, tileMax[0] > base[0] + ${headroom} || tileMax[1] > base[1] + ${headroom});
      if (isRaised) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          // Four lanes share a row.
          float highest = tileMax[half];
          highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
          highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
          const float raised = isFirst ? highest : fmaxf(base[half], highest);
          if (!isFirst) {
            rescale[half] = ex2Approx(base[half] - raised);
            rowTotal[half] *= rescale[half];
          }
          base[half] = raised;
        }
      }
#pragma unroll
      for (unsigned half = 0; half < 2; half++) {
        float total[2];
#pragma unroll
        for (unsigned i = 0; i < tileN / 4; i++) {
          float& score = scores[i / 2 * 4 + 2 * half + i % 2];
          score = ex2Approx(${exponentOf(config, "score", "base[half]")});
          total[i % 2] = i < 2 ? score : total[i % 2] + score;
${drops ? "          if (!kept.has(i / 2 * 4 + 2 * half + i % 2)) score = 0;" : ""}
        }
        rowTotal[half] = isFirst ? total[0] + total[1] : rowTotal[half] + (total[0] + total[1]);
      }
    };

    Position keyAt, valueAt${tile.loadsOwnTiles ? ", lastAt" : ""};
    unsigned visit = visits - 1;
${
  isCausal && tile.warpgroups > 1
    ? `    // Tiles that are hidden from all rows of this warpgroup.
#pragma unroll 1
    for (; (int)(visit * tileN) > firstOfGroup + 63; visit--) {
      mbarrierWait(keyFull + keyAt.stage, keyAt.parity);
      release(keyEmpty + keyAt.stage);
      mbarrierWait(valueFull + keyAt.stage, keyAt.parity);
      release(valueEmpty + keyAt.stage);
      keyAt.advance();
    }
    valueAt = keyAt;
`
    : ""
}
    // While the first tiles are loaded.
${masks.fetch}
${draw(isCausal ? "firstOfWarp + 15" : undefined)}
${masks.store}
    mbarrierWait(queryFull, 0);
    mbarrierWait(keyFull + keyAt.stage, keyAt.parity);
    fenceAll(scores);
    wgmmaFence();
    multiply<width, tileN>(scores, myQueries, keys + keyAt.stage * KeyTile::bytes);
    wgmmaCommit();
    wgmmaWait<0>();
    fenceAll(scores);
    release(keyEmpty + keyAt.stage);
    keyAt.advance();
    toPowers(visit * tileN, true);
    pack<tileN>(probabilities, scores);

#pragma unroll 1
    for (; visit-- > 0;) {
      mbarrierWait(keyFull + keyAt.stage, keyAt.parity);
      fenceAll(scores);
      fenceAll(result);
      wgmmaFence();
      multiply<width, tileN>(scores, myQueries, keys + keyAt.stage * KeyTile::bytes);
      wgmmaCommit();
      mbarrierWait(valueFull + valueAt.stage, valueAt.parity);
      wgmmaFence();
      multiplyPacked<tileN, valueWidth>(result, probabilities, values + valueAt.stage * ValueTile::bytes);
      wgmmaCommit();
${tile.loadsOwnTiles ? loadNext : ""}
${masks.fetch}
${draw()}
${masks.store}
      wgmmaWait<1>();
      fenceAll(scores);
      release(keyEmpty + keyAt.stage);
      keyAt.advance();
      toPowers(visit * tileN, false);
      wgmmaWait<0>();
      fenceAll(result);
      release(valueEmpty + valueAt.stage);
${tile.loadsOwnTiles ? "      lastAt = valueAt;" : ""}
      valueAt.advance();
      pack<tileN>(probabilities, scores);
      if (isRaised) {
#pragma unroll
        for (unsigned i = 0; i < valueWidth / 2; i++) result[i] *= rescale[i / 2 % 2];
      }
    }
    mbarrierWait(valueFull + valueAt.stage, valueAt.parity);
    fenceAll(result);
    wgmmaFence();
    multiplyPacked<tileN, valueWidth>(result, probabilities, values + valueAt.stage * ValueTile::bytes);
    wgmmaCommit();
    wgmmaWait<0>();
    fenceAll(result);

    float factors[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
      float total = rowTotal[half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      factors[half] = ${drops ? "dropoutScale * " : ""}rcpApprox(total);
      if (member == 0 && row + 8 * (int)half < rows)
        statistics[(batch * heads + head) * rows + row + 8 * half] = base[half] + lg2Approx(total);
    }
    // All of the warpgroup's reads of its queries are complete.
    namedBarrierSync(1 + warpgroup, 128);
${declarePairs("unsigned short", "out")}
    if (firstOfGroup < rows)
      storeRows<valueWidth>(result, factors, queries + warpgroup * queryBytes, outPair + (long long)firstOfGroup * outRow, outRow, rows - firstOfGroup);
  }`,
  });
}

const producerLoop = (tile: Sm90FlashTile): string => {
  const { consumer, producer } = registersOf(tile);
  return `  if (threadIdx.x >= consumers) {
    setmaxnregDec<${producer}>();
    if (threadIdx.x == consumers) {
      loadQueries();
      Position at;
#pragma unroll 1
      for (unsigned visit = visits; visit-- > 0;) {
        // A fresh mbarrier has completed the phase before its first.
        mbarrierWait(keyEmpty + at.stage, at.parity ^ 1);
        loadKeys(at.stage, visit);
        mbarrierWait(valueEmpty + at.stage, at.parity ^ 1);
        loadValues(at.stage, visit);
        at.advance();
      }
    }
  } else {
    setmaxnregInc<${consumer}>();`;
};

const firstLoads = `  if (threadIdx.x == 0) {
    loadQueries();
#pragma unroll 1
    for (unsigned stage = 0; stage < stages && stage < visits; stage++) {
      loadKeys(stage, visits - 1 - stage);
      loadValues(stage, visits - 1 - stage);
    }
  }
  {`;

/**
 * C++: refills two free stages: that of the keys of the previous tile, and that of the values of the tile before it. The other warps are at
 * most one step behind, so the wait is short.
 */
const loadNext = `      if (threadIdx.x == 0) {
        if (visit + 1 >= stages) {
          mbarrierWait(keyEmpty + valueAt.stage, valueAt.parity);
          loadKeys(valueAt.stage, visit + 1 - stages);
        }
        if (visit + 2 >= stages && visit + 2 < visits) {
          mbarrierWait(valueEmpty + lastAt.stage, lastAt.parity);
          loadValues(lastAt.stage, visit + 2 - stages);
        }
      }`;
