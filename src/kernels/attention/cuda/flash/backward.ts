/**
 * The backward pass of flash attention. A block has a tile of rows of one side, and visits the other side tile by tile; the scores and
 * their gradients are computed again, and exist only in registers. No two blocks write the same element, so the sums have one order.
 *
 * - side "rows": queries stay, keys and values are visited; the result is the gradient of the queries.
 * - side "columns": keys and values stay, queries are visited; the results are the gradients of keys and values.
 *
 * With P = 2^(score − statistics), a row's delta = Σ outGradient · out: dV = Pᵀ · dO, dS = P ∘ (dO · Vᵀ − delta), dQ = scale · dS · K and
 * dK = scale · dSᵀ · Q. With dropout, P · Z instead of P has the gradient dO · Vᵀ, with Z = 0 where a probability is dropped and a
 * constant elsewhere: dV = (P ∘ Z)ᵀ · dO and dS = P ∘ (Z ∘ (dO · Vᵀ) − delta). Side "columns" computes the transposed scores, so that they are an A operand as they are.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import type { Dtype } from "../../../../ir/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { isOfKeys } from "../../problem.js";
import { declarePair, declarePairAt, declarePairs, strideParameters } from "../parameters.js";
import { accumulatorsOf, type FlashConfig, tileM } from "./config.js";
import { declareFlash, declareInputPairs, inputPointers } from "./declarations.js";
import {
  declareDropout,
  declareDropoutOfPair,
  dropoutMemory,
  dropoutNumbers,
  dropoutPointers,
  isKept,
} from "./dropout.js";
import { factBytesOf, flashElements, realOf, rowPadding } from "./fragments.js";
import { loadTile } from "./tiles.js";
import { unrollingOf } from "./unrolling.js";

const inputs = ["query", "key", "value", "outGradient"] as const;

/** What a kernel computes: one or both results of its side. */
export type BackwardResult = "queryGradient" | "keyGradient" | "valueGradient";

export type BackwardConfig = FlashConfig<(typeof inputs)[number]> & {
  readonly side: "rows" | "columns";
  readonly results: readonly BackwardResult[];
  readonly resultDtype: Dtype;
  readonly access: "out" | "partial-out";
  /** True if the gradient of the scores is stored, as the gradient of the mask. Only side "rows". */
  readonly storesScoreGradient: boolean;
};

/** The arguments, in order. */
export function flashBackwardParameters({
  element,
  results,
  access,
  hasMask,
  isGrouped,
  dropout,
  storesScoreGradient,
}: Pick<
  BackwardConfig,
  "element" | "results" | "access" | "hasMask" | "isGrouped" | "dropout" | "storesScoreGradient"
>): Readonly<Record<string, Parameter>> {
  return {
    query: "in",
    key: "in",
    value: "in",
    outGradient: "in",
    ...(hasMask && { mask: "in" as const }),
    ...dropoutMemory(dropout),
    statistics: "in",
    deltas: "in",
    ...Object.fromEntries(results.map((name) => [name, access])),
    ...(storesScoreGradient && { scoreGradient: access }),
    heads: "u32",
    ...(isGrouped && { groupHeads: "u32" as const }),
    rows: "u32",
    columns: "u32",
    width: "u32",
    valueWidth: "u32",
    tiles: "u32",
    ...strideParameters(...inputs, ...results),
    ...(hasMask && { ...strideParameters("mask"), maskColumn: "u32" as const }),
    scale: element === "f64" ? "f64" : "f32",
    ...dropoutNumbers(dropout, element),
  };
}

/** Dynamic shared memory: the tiles that stay, the stages of visited tiles, and the statistics of visited rows. */
export function flashBackwardBytes(config: BackwardConfig): number {
  const { element, tile, depth, valueDepth, side } = config;
  const { stages } = tile;
  const rowElements = depth + valueDepth + 2 * rowPadding(element);
  const rows = tileM(tile) + stages * tile.tileN;
  const factBytes = side === "columns" ? stages * tile.tileN * factBytesOf(element) : 0;
  return rows * rowElements * flashElements[element].bytes + factBytes;
}

/** The columns of a row's accumulators: of scores, their gradients and the results. */
export function flashBackwardColumns({
  tile,
  depth,
  valueDepth,
  results,
}: Pick<BackwardConfig, "tile" | "depth" | "valueDepth" | "results">): number {
  return results.reduce((sum, name) => sum + (name === "valueGradient" ? valueDepth : depth), 2 * tile.tileN);
}

export function flashBackwardKernel(config: BackwardConfig): KernelSource {
  const { element, tile, sources, side, results } = config;
  const { stages } = tile;
  const { resultDtype, isCausal, hasMask, isGrouped, dropout, storesScoreGradient } = config;
  const drops = dropout !== "none";
  const { type: stored, narrow } = elementTypes[resultDtype];
  const isRows = side === "rows";
  const [stay1, stay2] = isRows ? (["query", "outGradient"] as const) : (["key", "value"] as const);
  const [visit1, visit2] = isRows ? (["key", "value"] as const) : (["query", "outGradient"] as const);
  const [stayCount, visitCount] = isRows ? ["rows", "columns"] : ["columns", "rows"];
  const real = realOf(element);
  const sharedBytes = flashBackwardBytes(config);
  const accumulators = accumulatorsOf(tile, flashBackwardColumns(config), element);
  const kept = { accumulators, results: results.length };
  const load = (name: (typeof inputs)[number], tile: string, rows: string, first: string, count: string) => {
    const isValue = name === "value" || name === "outGradient";
    const sizes = isValue ? "valueDepth" : "depth";
    return loadTile(name, sources[name], element, {
      ...{ tile, rows, depth: sizes, stride: `${sizes} + padding`, first },
      ...{ count: `${count} - ${first}`, width: isValue ? "valueWidth" : "width" },
    });
  };
  const visitsHeads = isGrouped && !isRows;
  const keyHead = visitsHeads ? "sharedHead" : isGrouped ? "(head / groupHeads)" : "head";
  const first = isRows ? "queryGradient" : "keyGradient";
  const [hasFirst, hasSecond] = [results.includes(first), results.includes("valueGradient")];
  const range = isRows
    ? ["0", isCausal ? "firstStay + tileM < columns ? firstStay + tileM : columns" : "columns"]
    : [isCausal ? "firstStay / tileN * tileN" : "0", "rows"];
  return cudaKernel({
    name: `attention.flash.backward.${side}.${element}`,
    parameters: flashBackwardParameters(config),
    elements: real,
    pointers: {
      ...inputPointers(sources),
      ...Object.fromEntries(results.map((name) => [name, stored])),
      ...dropoutPointers,
    },
    threads: 32 * tile.warps,
    sharedBytes,
    declarations: declareFlash(config, unrollingOf(config, "backward", kept)) + declareDropout(dropout, side),
    body: `
  dynamicSharedMemory(smem, ${sharedBytes});
  Element* const stay1 = reinterpret_cast<Element*>(smem);
  Element* const stay2 = stay1 + tileM * (depth + padding);
  Element* const visits = stay2 + tileM * (valueDepth + padding);
  constexpr unsigned stages = ${stages}, stageElements = tileN * (depth + valueDepth + 2 * padding);
${isRows ? "" : "  RowStatistics* const visitedStatistics = reinterpret_cast<RowStatistics*>(visits + stages * stageElements);"}
${visitsHeads ? declareKeyPair : declarePair("blockIdx.x / tiles")}
  const unsigned firstStay = ${isRows && isCausal ? "(tiles - 1 - blockIdx.x % tiles)" : "blockIdx.x % tiles"} * tileM;
${declareInputPairs(sources, visitsHeads ? ["key", "value"] : inputs, keyHead)}
${results.map((name) => declarePairAt(isOfKeys(name) ? keyHead : "head", stored, name)).join("\n")}
  const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4, warpRow = threadIdx.x / 32 * (16 * blocksM);
  const unsigned firstVisit = ${range[0]}, endVisit = ${range[1]};
  const Real scale2 = scale * log2E;
${hasFirst ? "  Real result1[blocksM][depth / 8][4] = {};" : ""}
${hasSecond ? "  Real result2[blocksM][valueDepth / 8][4] = {};" : ""}
  ${load(stay1, "stay1", "tileM", "firstStay", stayCount)}
  ${load(stay2, "stay2", "tileM", "firstStay", stayCount)}
${visitsHeads ? visitHeads(declareInputPairs(sources, ["query", "outGradient"], keyHead)) : ""}
${hasMask ? declarePairs(real, "mask") : ""}
${declareDropoutOfPair(dropout, "pair")}
  // The row statistics of a query; those of a query that does not exist make its probabilities 0.
  auto statisticsOf = [&](unsigned row) {
    return row < rows ? RowStatistics{statistics[pair * rows + row], deltas[pair * rows + row]} : RowStatistics{infinity(), 0};
  };
${
  isRows
    ? `  RowStatistics ownStatistics[blocksM][2];
#pragma unroll
  for (unsigned i = 0; i < 2 * blocksM; i++) ownStatistics[i / 2][i % 2] = statisticsOf(firstStay + warpRow + 8 * i + group);`
    : ""
}
  auto loadStage = [&](unsigned visit) {
    Element* const stage = visits + (visit - firstVisit) / tileN % stages * stageElements;
    if (visit < endVisit) {
      ${load(visit1, "stage", "tileN", "visit", visitCount)}
      ${load(visit2, "(stage + tileN * (depth + padding))", "tileN", "visit", visitCount)}
${isRows ? "" : "      if (threadIdx.x < tileN) visitedStatistics[(visit - firstVisit) / tileN % stages * tileN + threadIdx.x] = statisticsOf(visit + threadIdx.x);"}
    }
    cpAsyncCommit();
  };
#pragma unroll
  for (unsigned stage = 0; stage + 1 < stages; stage++) loadStage(firstVisit + stage * tileN);

  for (unsigned visit = firstVisit; visit < endVisit; visit += tileN) {
    loadStage(visit + (stages - 1) * tileN);
${
  drops
    ? `    unsigned kept[blocksM];
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) kept[i] = dropout.keptOf(${isRows ? "firstStay + warpRow + 16 * i, visit" : "visit, firstStay + warpRow + 16 * i"});`
    : ""
}
    cpAsyncWait<stages - 1>();
    __syncthreads();
    const Element* const visit1 = visits + (visit - firstVisit) / tileN % stages * stageElements;
    const Element* const visit2 = visit1 + tileN * (depth + padding);
    Real scores[blocksM][tileN / 8][4] = {}, gradients[blocksM][tileN / 8][4] = {};
    multiply<depth>(scores, stay1, warpRow, visit1);
    multiply<valueDepth>(gradients, stay2, warpRow, visit2);
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
      for (unsigned j = 0; j < tileN / 8; j++) {
#pragma unroll
        for (unsigned e = 0; e < 4; e++) {
          const unsigned stayed = firstStay + warpRow + 16 * i + 8 * (e / 2) + group, visited = visit + 8 * j + 2 * member + e % 2;
          [[maybe_unused]] const unsigned row = ${isRows ? "stayed" : "visited"}, column = ${isRows ? "visited" : "stayed"};
          const RowStatistics ofRow = ${isRows ? "ownStatistics[i][e / 2]" : "visitedStatistics[(visit - firstVisit) / tileN % stages * tileN + 8 * j + 2 * member + e % 2]"};
          Real score = scores[i][j][e] * scale2;
${
  hasMask
    ? "          if (row < rows && column < columns) score += log2E * maskPair[(long long)row * maskRow + (long long)column * maskColumn];"
    : ""
}
          const bool isVisible = column < columns${isCausal ? " && column <= row" : ""};
          scores[i][j][e] = isVisible ? power2(score - ofRow.statistics) : 0;
${drops ? `          gradients[i][j][e] = ${isKept} ? dropoutScale * gradients[i][j][e] : 0;` : ""}
          gradients[i][j][e] = isVisible ? scores[i][j][e] * (gradients[i][j][e] - ofRow.delta) : 0;
${drops ? `          if (!(${isKept})) scores[i][j][e] = 0;` : ""}
${
  storesScoreGradient
    ? "          if (row < rows && column < columns) scoreGradient[(pair * rows + row) * columns + column] = gradients[i][j][e];"
    : ""
}        }
      }
    }
${hasSecond ? "    multiplyAccumulators<valueDepth>(result2, scores, visit2);" : ""}
${hasFirst ? "    multiplyAccumulators<depth>(result1, gradients, visit1);" : ""}
    __syncthreads();
  }
${visitsHeads ? "  }" : ""}
${storesScoreGradient && isCausal ? hiddenScoreGradients : ""}
#pragma unroll
  for (unsigned i = 0; i < 2 * blocksM; i++) {
    const unsigned stayed = firstStay + warpRow + 8 * i + group;
    if (stayed >= ${stayCount}) continue;
${hasFirst ? storeResult(first, "result1", "depth", "width", narrow, "scale * ") : ""}
${hasSecond ? storeResult("valueGradient", "result2", "valueDepth", "valueWidth", narrow, drops ? "dropoutScale * " : "") : ""}
  }`,
  });
}

/** A block of side "columns" has one (batch, head) of keys and values, and visits the heads of queries that share it. */
const declareKeyPair = `
  const unsigned pairNumber = blockIdx.x / tiles, keyHeads = heads / groupHeads;
  const long long batch = pairNumber / keyHeads, sharedHead = pairNumber % keyHeads;`;

function visitHeads(declarations: string): string {
  return `
  for (long long head = sharedHead * groupHeads; head < (sharedHead + 1) * groupHeads; head++) {
  const long long pair = batch * heads + head;
${declarations}`;
}

/** The gradients of scores that no visited tile has: those of hidden columns are 0. */
const hiddenScoreGradients = `
  const unsigned seen = (endVisit + tileN - 1) / tileN * tileN;
  for (unsigned row = firstStay; row < firstStay + tileM && row < rows; row++) {
    for (unsigned column = seen + threadIdx.x; column < columns; column += threads) scoreGradient[(pair * rows + row) * columns + column] = 0;
  }`;

function storeResult(
  name: string,
  result: string,
  depth: string,
  width: string,
  narrow: string | undefined,
  factor: string,
): string {
  return `
#pragma unroll
    for (unsigned j = 0; j < ${depth} / 8; j++) {
#pragma unroll
      for (unsigned e = 0; e < 2; e++) {
        const unsigned d = 8 * j + 2 * member + e;
        const Real value = ${factor}${result}[i / 2][j][2 * (i % 2) + e];
        if (d < ${width}) ${name}Pair[(long long)stayed * ${name}Row + d] = ${narrow ? `${narrow}(value)` : "value"};
      }
    }`;
}
