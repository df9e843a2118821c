/**
 * The forward pass of flash attention: a block has a tile of queries, and visits the keys and values tile by tile. Scores exist only in
 * registers. The softmax is online: a row's maximum and total are updated with each tile, and what was accumulated before is scaled.
 *
 * Scores are in units of log2: one instruction computes a power of 2. For the backward pass, a row keeps log2 of the sum of its exponentials.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import type { Dtype } from "../../../../ir/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { elementTypes } from "../../../codegen/cuda/element-types.js";
import { declarePair, declarePairs, strideParameters } from "../parameters.js";
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
import { flashElements, isScalar, realOf, rowPadding } from "./fragments.js";
import { loadTile } from "./tiles.js";
import { unrollingOf } from "./unrolling.js";

const inputs = ["query", "key", "value"] as const;

export type ForwardConfig = FlashConfig<(typeof inputs)[number]> & {
  readonly resultDtype: Dtype;
  readonly access: "out" | "partial-out";
};

/** With more accumulators of a lane, f32 would spill in the registers of three blocks per SM. */
const maxAccumulatorsOfThree = 88;

/** Blocks per SM for FMA: their number decides how many registers the compiler may use, and without one it spills some. */
function residentBlocks({ element, tile, valueDepth }: FlashConfig): number {
  const columns = flashForwardColumns({ tile, valueDepth });
  return element === "f32" && accumulatorsOf(tile, columns, element) <= maxAccumulatorsOfThree ? 3 : 2;
}

/** The arguments, in order. */
export function flashForwardParameters({
  element,
  access,
  hasMask,
  isGrouped,
  dropout,
}: Pick<ForwardConfig, "element" | "access" | "hasMask" | "isGrouped" | "dropout">): Readonly<
  Record<string, Parameter>
> {
  return {
    query: "in",
    key: "in",
    value: "in",
    ...(hasMask && { mask: "in" as const }),
    ...dropoutMemory(dropout),
    out: access,
    statistics: access,
    heads: "u32",
    ...(isGrouped && { groupHeads: "u32" as const }),
    rows: "u32",
    columns: "u32",
    width: "u32",
    valueWidth: "u32",
    tiles: "u32",
    ...strideParameters("query", "key", "value", "out"),
    ...(hasMask && { ...strideParameters("mask"), maskColumn: "u32" as const }),
    scale: element === "f64" ? "f64" : "f32",
    ...dropoutNumbers(dropout, element),
  };
}

/** Dynamic shared memory: tiles of queries, keys and values. */
export function flashForwardBytes({ element, tile, depth, valueDepth }: FlashConfig): number {
  const padding = rowPadding(element);
  const elements = (tileM(tile) + tile.tileN) * (depth + padding) + tile.tileN * (valueDepth + padding);
  return elements * flashElements[element].bytes;
}

/** The columns of a row's accumulators: of scores and of the result. */
export function flashForwardColumns({ tile, valueDepth }: Pick<FlashConfig, "tile" | "valueDepth">): number {
  return tile.tileN + valueDepth;
}

export function flashForwardKernel(config: ForwardConfig): KernelSource {
  const { element, tile, sources, resultDtype, isCausal, hasMask, isGrouped, dropout } = config;
  const drops = dropout !== "none";
  const { type: stored, narrow } = elementTypes[resultDtype];
  const real = realOf(element);
  const sharedBytes = flashForwardBytes(config);
  const kept = { accumulators: accumulatorsOf(tile, flashForwardColumns(config), element), results: 1 };
  const rowsOf = (name: "key" | "value", tile: string, depth: string): string =>
    loadTile(name, sources[name], element, {
      ...{ tile, rows: "tileN", depth, stride: `${depth} + padding`, first: "column" },
      ...{ count: "columns - column", width: name === "key" ? "width" : "valueWidth" },
    });
  return cudaKernel({
    name: `attention.flash.${element}`,
    parameters: flashForwardParameters(config),
    elements: real,
    pointers: {
      ...inputPointers(sources),
      out: stored,
      ...dropoutPointers,
    },
    threads: 32 * tile.warps,
    sharedBytes,
    ...(isScalar(element) && { blocksPerSm: residentBlocks(config) }),
    declarations:
      declareFlash(config, unrollingOf(config, "forward", kept)) + declareDropout(dropout, "rows"),
    body: `
  dynamicSharedMemory(smem, ${sharedBytes});
  Element* const queries = reinterpret_cast<Element*>(smem);
  Element* const keys = queries + tileM * (depth + padding);
  Element* const values = keys + tileN * (depth + padding);
${declarePair("blockIdx.x / tiles")}
  // The last rows see the most columns: they start first.
  const unsigned firstRow = (tiles - 1 - blockIdx.x % tiles) * tileM;
${declareInputPairs(sources, inputs, isGrouped ? "(head / groupHeads)" : "head")}
${hasMask ? declarePairs(real, "mask") : ""}
${declarePairs(stored, "out")}
  const unsigned lane = threadIdx.x % 32, group = lane / 4, member = lane % 4, warpRow = threadIdx.x / 32 * (16 * blocksM);
  const unsigned endColumn = ${isCausal ? "firstRow + tileM < columns ? firstRow + tileM : columns" : "columns"};
  const Real scale2 = scale * log2E;
${declareDropoutOfPair(dropout, "pair")}
  Real result[blocksM][valueDepth / 8][4] = {};
  Real rowMax[blocksM][2], rowTotal[blocksM][2] = {};
#pragma unroll
  for (unsigned i = 0; i < 2 * blocksM; i++) rowMax[i / 2][i % 2] = -infinity();

  ${loadTile("query", sources.query, element, {
    ...{ tile: "queries", rows: "tileM", depth: "depth", stride: "depth + padding", first: "firstRow" },
    ...{ count: "rows - firstRow", width: "width" },
  })}
  auto loadKeys = [&](unsigned column) { ${rowsOf("key", "keys", "depth")} };
  auto loadValues = [&](unsigned column) { ${rowsOf("value", "values", "valueDepth")} };
  loadKeys(0);
  cpAsyncCommit();

  for (unsigned firstColumn = 0; firstColumn < endColumn; firstColumn += tileN) {
${
  drops
    ? `    unsigned kept[blocksM];
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) kept[i] = dropout.keptOf(firstRow + warpRow + 16 * i, firstColumn);`
    : ""
}
    cpAsyncWait<0>();
    __syncthreads();
    loadValues(firstColumn);
    cpAsyncCommit();
    Real scores[blocksM][tileN / 8][4] = {};
    multiply<depth>(scores, queries, warpRow, keys);
    __syncthreads();
    if (firstColumn + tileN < endColumn) loadKeys(firstColumn + tileN);
    cpAsyncCommit();

#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
      for (unsigned half = 0; half < 2; half++) {
        [[maybe_unused]] const unsigned row = firstRow + warpRow + 16 * i + 8 * half + group;
        const unsigned visible = ${isCausal ? "row + 1 < columns ? row + 1 : columns" : "columns"};
        const bool isWhole = firstColumn + tileN <= visible;
        Real highest = rowMax[i][half];
#pragma unroll
        for (unsigned j = 0; j < tileN / 8; j++) {
#pragma unroll
          for (unsigned e = 2 * half; e < 2 * half + 2; e++) {
            Real& score = scores[i][j][e];
            score *= scale2;
            const unsigned column = firstColumn + 8 * j + 2 * member + e % 2;
${
  hasMask
    ? `            if (row < rows && column < columns) score += log2E * maskPair[(long long)row * maskRow + (long long)column * maskColumn];
`
    : ""
}            if (!isWhole && column >= visible) score = -infinity();
            highest = highest < score ? score : highest;
          }
        }
        // Four lanes share a row.
        for (unsigned other = 1; other < 4; other *= 2) {
          const Real theirs = __shfl_xor_sync(0xffffffffu, highest, other);
          highest = highest < theirs ? theirs : highest;
        }
        // A row that has seen only hidden columns: any finite number serves.
        const Real base = highest == -infinity() ? 0 : highest;
        const Real rescale = power2(rowMax[i][half] - base);
        rowMax[i][half] = highest;
        Real total = 0;
#pragma unroll
        for (unsigned j = 0; j < tileN / 8; j++) {
#pragma unroll
          for (unsigned e = 2 * half; e < 2 * half + 2; e++) {
            scores[i][j][e] = power2(scores[i][j][e] - base);
            total += scores[i][j][e];
${drops ? `            if (!(${isKept})) scores[i][j][e] = 0;` : ""}
          }
        }
        rowTotal[i][half] = rowTotal[i][half] * rescale + total;
#pragma unroll
        for (unsigned j = 0; j < valueDepth / 8; j++) {
          result[i][j][2 * half] *= rescale;
          result[i][j][2 * half + 1] *= rescale;
        }
      }
    }

    cpAsyncWait<1>();
    __syncthreads();
    multiplyAccumulators<valueDepth>(result, scores, values);
  }

#pragma unroll
  for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
      Real total = rowTotal[i][half];
      for (unsigned other = 1; other < 4; other *= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
      const unsigned row = firstRow + warpRow + 16 * i + 8 * half + group;
      if (row >= rows) continue;
      if (member == 0) statistics[pair * rows + row] = rowMax[i][half] + ${real === "double" ? "log2" : "log2f"}(total);
#pragma unroll
      for (unsigned j = 0; j < valueDepth / 8; j++) {
#pragma unroll
        for (unsigned e = 0; e < 2; e++) {
          const unsigned d = 8 * j + 2 * member + e;
          const Real value = ${drops ? "dropoutScale * " : ""}result[i][j][2 * half + e] / total;
          if (d < valueWidth) outPair[(long long)row * outRow + d] = ${narrow ? `${narrow}(value)` : "value"};
        }
      }
    }
  }`,
  });
}
