/**
 * The backward pass of flash attention on `wgmma`. A warpgroup has 64 rows of one side, and visits the other side tile by tile. The scores
 * and their gradients are computed again, and exist only in registers. No two blocks write the same element, so the sums have one order.
 *
 * - side "rows": queries stay, keys and values are visited; the results are the gradient of the queries, and the deltas.
 * - side "columns": keys and values stay, queries are visited; the results are the gradients of keys and values.
 *
 * With P = 2^(score − statistics), a row's delta = Σ outGradient · out: dV = Pᵀ · dO, dS = P ∘ (dO · Vᵀ − delta), dQ = scale · dS · K and
 * dK = scale · dSᵀ · Q. Side "columns" computes the transposed scores, so that they are an A operand as they are.
 * Dropout scales or drops P in dV and dO · Vᵀ in dS.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { declareDropoutOfPair, dropoutMemory, dropoutNumbers, dropoutPointers } from "../flash/dropout.js";
import { declarePairs, strideParameters } from "../parameters.js";
import {
  registersOf,
  type Sm90BackwardConfig,
  threadsOf,
  tileBytes,
  tileM,
  warpgroupRows,
} from "./config.js";
import { declareSm90Flash, declareWork } from "./declarations.js";
import { exponentOf, maskBytes, maskCode, maskParameters } from "./masks.js";
import { inputMap, inputParameters, sizeParameters } from "./operands.js";
import {
  keepInLoop,
  loadOwnStatistics,
  loadVisitedStatistics,
  prefetchKept,
  queryHead,
} from "./row-statistics.js";

/** The arguments, in order. Side "rows" stores the deltas that side "columns" reads. */
export function sm90BackwardParameters({
  side,
  element,
  access,
  dropout,
  mask,
  isGrouped,
}: Pick<Sm90BackwardConfig, "side" | "element" | "access" | "dropout" | "mask" | "isGrouped">): Readonly<
  Record<string, Parameter>
> {
  const isRows = side === "rows";
  return {
    ...inputParameters("query", "key", "value", "outGradient"),
    ...maskParameters(mask),
    ...dropoutMemory(dropout),
    ...(isRows && { outGradientRows: "in" as const, out: "in" as const }),
    statistics: "in",
    deltas: isRows ? "out" : "in",
    ...(isRows ? { queryGradient: access } : { keyGradient: access, valueGradient: access }),
    ...sizeParameters(!isRows || isGrouped),
    ...(isRows ? strideParameters("out", "queryGradient") : strideParameters("keyGradient", "valueGradient")),
    scale: "f32",
    ...dropoutNumbers(dropout, element),
  };
}

/** The tiles that stay, which become the staging of the results, the stages, the row statistics of visited queries, masks, and mbarriers. */
export function sm90BackwardBytes(config: Sm90BackwardConfig): number {
  const { tile, width, valueWidth, side } = config;
  const { stages, tileN } = tile;
  const rowBytes = (rows: number): number => tileBytes(rows, width) + tileBytes(rows, valueWidth);
  const statisticBytes = side === "columns" ? stages * (tileN * 8 + keptBytesOf(config)) : 0;
  const besideTiles = statisticBytes + maskBytes(config, side) + 8 * (1 + 2 * stages);
  return rowBytes(tileM(tile)) + stages * rowBytes(tileN) + besideTiles;
}

/** The dropout bits in a stage of shared memory: for the keys of all warpgroups and the visited queries. Side "rows" has them in registers. */
function keptBytesOf({ tile, side, dropout }: Sm90BackwardConfig): number {
  return dropout === "loads" && side === "columns" ? (tileM(tile) * tile.tileN) / 8 : 0;
}

/**
 * The arrivals that complete a stage: one of the thread that loads tiles. Side "columns" adds those of the 32 threads of a warp that loads row
 * statistics, and one of the thread that copies dropout bits, if there are any.
 */
function arrivalsOf({ side, dropout }: Sm90BackwardConfig): number {
  if (side === "rows") return 1;
  return dropout === "loads" ? 34 : 33;
}

/**
 * With fewer stages a block would wait forever. Products in flight keep their stage until those of the next tile are issued, so that tile needs
 * another stage. Before it, side "columns" skips the tiles that the warpgroup does not see of the next head, and keeps the stage.
 */
export function minStagesOf({ side, tile, isCausal, isGrouped }: Sm90BackwardConfig): number {
  if (tile.drains) return 1;
  const skips = side === "columns" && isCausal && isGrouped;
  return 2 + (skips ? Math.ceil((tileM(tile) - warpgroupRows) / tile.tileN) : 0);
}

export function sm90BackwardKernel(config: Sm90BackwardConfig): KernelSource {
  const { element, tile, isCausal, side, dropout } = config;
  if (tile.stages < minStagesOf(config))
    throw new Error(`The tile has ${tile.stages} stages, and needs ${minStagesOf(config)}.`);
  const isRows = side === "rows";
  const [stay1, stay2] = isRows ? (["query", "outGradient"] as const) : (["key", "value"] as const);
  const [visit1, visit2] = isRows ? (["key", "value"] as const) : (["query", "outGradient"] as const);
  const [stayCount, visitCount] = isRows ? (["rows", "columns"] as const) : (["columns", "rows"] as const);
  const sharedBytes = sm90BackwardBytes(config);
  const { consumer, producer } = registersOf(tile);
  const { widen } = elementTypes[element];
  // Side "columns" visits all heads of queries that share its head of keys and values.
  const eachHead = isRows || !config.isGrouped ? "" : headsOfGroup;
  const visitedHead = isRows ? (config.isGrouped ? "head / groupHeads" : "head") : `(${queryHead(config)})`;
  const drops = dropout !== "none";
  const dropoutOfHead = declareDropoutOfPair(
    dropout,
    `batch * heads + ${isRows ? "head" : queryHead(config)}`,
  );
  const packPowers = `      pack<tileN>(packedPowers, scores${drops ? ", kept" : ""});`;
  // One rounding: the error is far below that of the operands.
  const gradient = (delta: string): string =>
    drops ? `fmaf(kept.has(i) ? gradients[i] : 0, dropoutScale, -${delta})` : `(gradients[i] - ${delta})`;
  const issuesEarly = !isRows && tile.issuesEarly;
  const maskTileBytes = maskBytes(config, side);
  const masks = maskCode(config, side, {
    ...{ head: isRows ? "head" : `(${queryHead(config)})`, stayed: "stayed", visit: "visit" },
  });
  const producerLoop = `  if (threadIdx.x >= consumers) {
    setmaxnregDec<${producer}>();
    if (threadIdx.x == consumers) {
      loadStays();
      Position at;
${eachHead}
#pragma unroll 1
      for (int visit = firstVisit; visit < endVisit; visit += tileN) {
        // A fresh mbarrier has completed the phase before its first.
        mbarrierWait(empty + at.stage, at.parity ^ 1);
        loadVisit(at.stage, visit, ${visitedHead});
        at.advance();
      }
    }${isRows ? "" : loadVisitedStatistics(config, eachHead)}
  } else {
    setmaxnregInc<${consumer}>();`;
  const map = (name: string, count: string, boxRows: number) => inputMap(name, element, count, boxRows);
  return cudaKernel({
    name: `attention.flash.sm90.backward.${side}.${element}`,
    parameters: sm90BackwardParameters(config),
    ...{
      elements: "float",
      requiredCapability: "9.0",
      threads: threadsOf(tile),
      blocksPerSm: tile.blocksPerSm,
      sharedBytes,
    },
    pointers: {
      ...Object.fromEntries(
        ["outGradientRows", "out", "queryGradient", "keyGradient", "valueGradient"].map((name) => [
          name,
          "unsigned short",
        ]),
      ),
      ...dropoutPointers,
    },
    maps: {
      [stay1]: map(stay1, stayCount, warpgroupRows),
      [stay2]: map(stay2, stayCount, warpgroupRows),
      [visit1]: map(visit1, visitCount, tile.tileN),
      [visit2]: map(visit2, visitCount, tile.tileN),
    },
    declarations: `${isRows && widen ? preludeOf(new Set([widen])) : ""}${declareSm90Flash(config, side)}`,
    body: `
  swizzledSharedMemory(stays, ${sharedBytes});
  typedef Tile<64, width> Stay1;
  typedef Tile<64, valueWidth> Stay2;
  typedef Tile<tileN, width> Visit1;
  typedef Tile<tileN, valueWidth> Visit2;
  constexpr unsigned stayBytes = Stay1::bytes + Stay2::bytes, stageBytes = Visit1::bytes + Visit2::bytes;
  unsigned char* const stageTiles = stays + warpgroups * stayBytes;
${isRows ? "" : `  constexpr unsigned keptBytes = ${keptBytesOf(config)};`}
${isRows ? "" : "  float2* const rowStatistics = reinterpret_cast<float2*>(stageTiles + stages * stageBytes);"}
${isRows ? "" : "  [[maybe_unused]] unsigned char* const keptTiles = reinterpret_cast<unsigned char*>(rowStatistics + stages * tileN);"}
${maskTileBytes ? "  float* const maskTiles = reinterpret_cast<float*>(stageTiles + stages * stageBytes);" : ""}
  Mbarrier* const stayFull = reinterpret_cast<Mbarrier*>(stageTiles + stages * (stageBytes${isRows ? "" : " + tileN * 8 + keptBytes"})${maskTileBytes ? ` + ${maskTileBytes}` : ""});
  Mbarrier *const full = stayFull + 1, *const empty = full + stages;
  if (threadIdx.x == 0) {
    mbarrierInit(stayFull, 1);
    for (unsigned stage = 0; stage < stages; stage++) {
      mbarrierInit(full + stage, ${arrivalsOf(config)});
      mbarrierInit(empty + stage, consumers / 32);
    }
  }
  fenceMbarrierInit();
  __syncthreads();
${declareWork(isRows, isRows ? "heads" : "heads / groupHeads")}
  const int firstStay = tile * tileM;
${
  isRows
    ? `  constexpr int firstVisit = 0;
  const int endVisit = ${isCausal ? "firstStay + (int)tileM < columns ? firstStay + (int)tileM : columns" : "columns"};`
    : `  const int firstVisit = ${isCausal ? "firstStay / (int)tileN * (int)tileN" : "0"}, endVisit = rows;`
}

  const int queryMatrix = queryBatch == 0 ? 0 : batch, keyMatrix = keyBatch == 0 ? 0 : batch;
  const int valueMatrix = valueBatch == 0 ? 0 : batch, outGradientMatrix = outGradientBatch == 0 ? 0 : batch;
  auto loadStays = [&] {
    mbarrierArriveExpectTx(stayFull, warpgroups * stayBytes);
#pragma unroll 1
    for (unsigned i = 0; i < warpgroups; i++) {
      Stay1::load(stays + i * stayBytes, &${stay1}, head * ${stay1}Head, firstStay + 64 * i, ${stay1}Matrix, stayFull);
      Stay2::load(stays + i * stayBytes + Stay1::bytes, &${stay2}, head * ${stay2}Head, firstStay + 64 * i, ${stay2}Matrix, stayFull);
    }
  };
  auto loadVisit = [&](unsigned stage, int visit, long long visitedHead) {
    mbarrierArriveExpectTx(full + stage, stageBytes);
    unsigned char* const stageTile = stageTiles + stage * stageBytes;
    Visit1::load(stageTile, &${visit1}, visitedHead * ${visit1}Head, visit, ${visit1}Matrix, full + stage);
    Visit2::load(stageTile + Visit1::bytes, &${visit2}, visitedHead * ${visit2}Head, visit, ${visit2}Matrix, full + stage);
  };

${producerLoop}
    const unsigned warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    const int firstOfGroup = firstStay + 64 * (int)warpgroup;
    [[maybe_unused]] const int stayed = firstOfGroup + (int)(threadIdx.x % 128 / 32 * 16 + group);
    unsigned char* const myStays = stays + warpgroup * stayBytes;
    const float scale2 = scale * 1.44269504f;
    [[maybe_unused]] const float lowest = __uint_as_float(0xff800000u);
    auto release = [&](unsigned stage) {
      if (lane == 0) mbarrierArrive(empty + stage);
    };
    float scores[tileN / 2], gradients[tileN / 2], result1[width / 2];
    unsigned packed[tileN / 16][4];
#pragma unroll
    for (unsigned i = 0; i < width / 2; i++) result1[i] = 0;
${
  isRows
    ? loadOwnStatistics(widen ?? "")
    : `    float result2[valueWidth / 2];
    unsigned packedPowers[tileN / 16][4];
#pragma unroll
    for (unsigned i = 0; i < valueWidth / 2; i++) result2[i] = 0;`
}
    mbarrierWait(stayFull, 0);
    Position at;
${drops ? "    Kept kept;" : ""}
${isRows ? `${dropoutOfHead}\n${masks.declare}\n    int visit = firstVisit;\n${dropout === "loads" ? prefetchKept : ""}` : ""}
${tile.drains ? "" : "    // The stage that the products in flight still read.\n    unsigned lastStage = stages;"}
${isRows ? "" : `${eachHead} {${dropout === "loads" ? "" : dropoutOfHead}\n${masks.declare}\n    int visit = firstVisit;`}
${!isRows && isCausal ? skipHidden : ""}
#pragma unroll 1
    for (; visit < ${isRows && isCausal ? "endVisit && visit <= firstOfGroup + 63" : "endVisit"}; visit += tileN) {
      const unsigned char* const stageTile = stageTiles + at.stage * stageBytes;
      mbarrierWait(full + at.stage, at.parity);
      fenceAll(scores);
      fenceAll(gradients);
      wgmmaFence();
      multiply<width, tileN>(scores, myStays, stageTile);
      wgmmaCommit();
      multiply<valueWidth, tileN>(gradients, myStays + Stay1::bytes, stageTile + Visit1::bytes);
      wgmmaCommit();
${masks.fetch}
${keepInLoop(config)}
${masks.store}
      wgmmaWait<1>();
      fenceAll(scores);
      fenceAll(result1);
${isRows ? "" : "      fenceAll(result2);"}
${tile.drains ? "" : "      if (lastStage < stages) release(lastStage);\n      lastStage = at.stage;"}
${masks.add}
${hideScores(isRows, isCausal)}
${isRows ? "" : "      const float2* const tileStatistics = rowStatistics + at.stage * tileN + member * 2;"}
#pragma unroll
      for (unsigned i = 0; i < tileN / 2; i++) {
        scores[i] = ex2Approx(${exponentOf(config, "scores[i]", isRows ? "statistic[i / 2 % 2]" : "tileStatistics[i / 4 * 8 + i % 2].x")});
      }
${issuesEarly ? packPowers : ""}
      wgmmaWait<0>();
      fenceAll(gradients);
${issuesEarly ? multiplyPowers : ""}
#pragma unroll
      for (unsigned i = 0; i < tileN / 2; i++) {
        gradients[i] = scores[i] * ${gradient(isRows ? "delta[i / 2 % 2]" : "tileStatistics[i / 4 * 8 + i % 2].y")};
      }
${isRows || issuesEarly ? "" : `${packPowers}\n${multiplyPowers}`}
      pack<tileN>(packed, gradients);
      wgmmaFence();
      multiplyPacked<tileN, width>(result1, packed, stageTile);
      wgmmaCommit();
${tile.drains ? drain(isRows) : ""}
      at.advance();
    }
${isRows ? "" : "    }"}
    wgmmaWait<0>();
    fenceAll(result1);
${isRows ? "" : "    fenceAll(result2);"}
${isRows && isCausal && tile.warpgroups > 1 ? skipRest(tile.drains) : ""}
    // All of the warpgroup's reads of the tiles that stay are complete.
    namedBarrierSync(1 + warpgroup, 128);
    if (firstOfGroup < ${stayCount}) {
      const float factors1[2] = {scale, scale};
${storeResult(isRows ? "queryGradient" : "keyGradient", "width", "result1", "factors1", "myStays", stayCount)}
${
  isRows
    ? ""
    : `      const float factors2[2] = {${drops ? "dropoutScale, dropoutScale" : "1, 1"}};
${storeResult("valueGradient", "valueWidth", "result2", "factors2", "myStays + Stay1::bytes", stayCount)}`
}
    }
  }`,
  });
}

const drain = (isRows: boolean): string => `      wgmmaWait<0>();
      fenceAll(result1);
${isRows ? "" : "      fenceAll(result2);"}
      release(at.stage);`;

const multiplyPowers = `      wgmmaFence();
      multiplyPacked<tileN, valueWidth>(result2, packedPowers, stageTile + Visit1::bytes);
      wgmmaCommit();`;

function storeResult(
  name: string,
  width: string,
  acc: string,
  factors: string,
  staging: string,
  count: string,
): string {
  return `${declarePairs("unsigned short", name)}
      storeRows<${width}>(${acc}, ${factors}, ${staging}, ${name}Pair + (long long)firstOfGroup * ${name}Row, ${name}Row, ${count} - firstOfGroup);`;
}

const headsOfGroup = `
#pragma unroll 1
      for (unsigned headOfGroup = 0; headOfGroup < groupHeads; headOfGroup++)`;

/** C++: hides columns after a row's last visible one. Tiles without a hidden column need no test of their elements. */
export function hideScores(isRows: boolean, isCausal: boolean): string {
  const hide = (count: string, isHidden: string): string => `
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          const int limit = ${count} - visit - 2 * (int)member;
#pragma unroll
          for (int i = 0; i < (int)tileN / 4; i++) {
            float& score = scores[i / 2 * 4 + 2 * half + i % 2];
            score = i / 2 * 8 + i % 2 ${isHidden} limit ? lowest : score;
          }
        }
      }`;
  if (isRows) {
    const visible = isCausal
      ? "(stayed + 8 * (int)half + 1 < columns ? stayed + 8 * (int)half + 1 : columns)"
      : "columns";
    return `      if (${isCausal ? "visit + (int)tileN > firstOfGroup + 1 || " : ""}visit + (int)tileN > columns) {${hide(visible, ">=")}`;
  }
  // Rows after the last column are not stored.
  return isCausal ? `      if (visit < firstOfGroup + 63) {${hide("stayed + 8 * (int)half", "<")}` : "";
}

/** Side "columns": tiles of queries that see none of the warpgroup's columns. */
const skipHidden = `#pragma unroll 1
    for (; visit < endVisit && visit + (int)tileN <= firstOfGroup; visit += tileN) {
      mbarrierWait(full + at.stage, at.parity);
      release(at.stage);
      at.advance();
    }`;

/** Side "rows": tiles that no row of the warpgroup sees. */
const skipRest = (
  drains: boolean,
): string => `${drains ? "" : "    if (lastStage < stages) release(lastStage);"}
#pragma unroll 1
    for (; visit < endVisit; visit += tileN) {
      mbarrierWait(full + at.stage, at.parity);
      release(at.stage);
      at.advance();
    }`;
