/**
 * Additive masks in flash attention on `wgmma`. A mask is added to the scaled scores, in log2, before causal and other hidden columns are
 * hidden. A row without a visible column has a total of 0, so its result is NaN, as in the other kernels.
 *
 * - "keys": all queries have the same mask, such as one of padded keys. If keys are visited, each warp has the mask of a tile in shared memory
 *   of its own, so that no other warp waits. If keys stay, a thread has the masks of its two keys in registers.
 * - "elements" and "pairs": a thread loads the mask of each of its scores, or of two neighbouring columns at once.
 */

import type { Parameter } from "../../../../driver/index.js";
import { declarePairAt, type OperandLayout } from "../parameters.js";
import { consumersOf, type Side, type Sm90FlashConfig, type Sm90Mask } from "./config.js";

/** The mask, and its strides. */
export function maskParameters(mask: Sm90Mask): Readonly<Record<string, Parameter>> {
  if (mask === "none") return {};
  return {
    ...{ mask: "in", maskBatch: "u32", maskHead: "u32" },
    ...(mask === "keys" ? { maskColumn: "u32" } : { maskRow: "u32" }),
  };
}

/** How kernels read a mask of this layout; undefined if they can't. */
export function maskOf(
  { storage, width, strides }: OperandLayout,
  columnStride: number,
): Sm90Mask | undefined {
  if (strides.Row === 0) return "keys";
  if (columnStride !== 1) return undefined;
  const { Batch, Head, Row } = strides;
  const arePairs = [storage.span.address / 4, width, Batch, Head, Row].every((count) => count % 2 === 0);
  return arePairs ? "pairs" : "elements";
}

/** Shared memory: the mask of a visited tile for each consumer warp. */
export function maskBytes({ mask, tile }: Sm90FlashConfig, side: Side): number {
  return mask === "keys" && side === "rows" ? (consumersOf(tile) / 32) * tile.tileN * 4 : 0;
}

/** C++ code around the products of a visited tile. */
export interface MaskCode {
  /** Before the loop over visited tiles of one head: `maskPair` and `addMask`. */
  readonly declare: string;
  /** After the products of a tile's scores are issued, and before they are awaited. */
  readonly fetch: string;
  readonly store: string;
  /** Scores become scaled scores with their mask. */
  readonly add: string;
}

const none: MaskCode = { declare: "", fetch: "", store: "", add: "" };

/** The exponent of a score, relative to `base`: `addMask` has scaled a masked score. */
export function exponentOf({ mask }: Sm90FlashConfig, score: string, base: string): string {
  return mask === "none" ? `fmaf(${score}, scale2, -${base})` : `${score} - ${base}`;
}

/**
 * The code for one side. `head`: the head of queries. `stayed`: a lane's first row of the tile that stays in the block. `visit`: the first row
 * of the visited tile.
 */
export function maskCode(
  { mask }: Sm90FlashConfig,
  side: Side,
  { head, stayed, visit }: { readonly head: string; readonly stayed: string; readonly visit: string },
): MaskCode {
  if (mask === "none") return none;
  const pair = `${declarePairAt(head, "float", "mask")}${offsetOf}`;
  const add = `      addMask(${visit});`;
  if (mask !== "keys") {
    const declare = `${pair}\n${side === "rows" ? elementsOfRows(stayed, mask === "pairs") : elementsOfColumns(stayed)}`;
    return { ...none, declare, add };
  }
  if (side === "columns") return { ...none, declare: `${pair}\n${stayedKeys(stayed)}`, add };
  const fetch = `      fetchMask(${visit});`;
  return { declare: `${pair}\n${visitedKeys}`, fetch, store: "      storeMask();", add };
}

const log2E = "1.44269504f";

/** C++: one instruction, unlike a product of signed 64-bit numbers. */
const offsetOf = `
    [[maybe_unused]] auto offsetOf = [](int index, unsigned stride) { return (unsigned long long)(unsigned)index * stride; };`;

/** The lanes of a warp load neighbouring columns. Columns after the last one are hidden later. */
const visitedKeys = `
    float* const maskTile = maskTiles + threadIdx.x / 32 * tileN;
    float fetchedMask[tileN / 32];
    auto fetchMask = [&](int visited) {
#pragma unroll
      for (unsigned i = 0; i < tileN / 32; i++) {
        const int column = visited + (int)(32 * i + lane);
        fetchedMask[i] = column < columns ? maskPair[offsetOf(column, maskColumn)] : 0;
      }
    };
    auto storeMask = [&] {
      // All lanes have read the mask of the last tile.
      __syncwarp();
#pragma unroll
      for (unsigned i = 0; i < tileN / 32; i++) maskTile[32 * i + lane] = ${log2E} * fetchedMask[i];
      __syncwarp();
    };
    auto addMask = [&](int) {
#pragma unroll
      for (unsigned j = 0; j < tileN / 8; j++) {
        const float2 two = reinterpret_cast<const float2*>(maskTile)[4 * j + member];
#pragma unroll
        for (unsigned e = 0; e < 4; e++) scores[4 * j + e] = fmaf(scores[4 * j + e], scale2, e % 2 == 0 ? two.x : two.y);
      }
    };`;

const stayedKeys = (stayed: string): string => `
    float ownMask[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
      const int column = ${stayed} + 8 * (int)half;
      ownMask[half] = column < columns ? ${log2E} * maskPair[offsetOf(column, maskColumn)] : 0;
    }
    auto addMask = [&](int) {
#pragma unroll
      for (unsigned i = 0; i < tileN / 2; i++) scores[i] = fmaf(scores[i], scale2, ownMask[i / 2 % 2]);
    };`;

/** The last row stands in for rows that don't exist, whose results are not stored. */
const elementsOfRows = (stayed: string, arePairs: boolean): string => `
    const float* maskRows[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
      const int own = ${stayed} + 8 * (int)half;
      maskRows[half] = maskPair + offsetOf(own < rows ? own : rows - 1, maskRow);
    }
    auto addMask = [&](int visited) {
#pragma unroll
      for (unsigned j = 0; j < tileN / 8; j++) {
        const int column = visited + (int)(8 * j + 2 * member);
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          float2 two = make_float2(0, 0);
${
  arePairs
    ? "          if (column < columns) two = *reinterpret_cast<const float2*>(maskRows[half] + column);"
    : `          if (column < columns) two.x = maskRows[half][column];
          if (column + 1 < columns) two.y = maskRows[half][column + 1];`
}
          float& first = scores[4 * j + 2 * half];
          float& second = scores[4 * j + 2 * half + 1];
          first = fmaf(first, scale2, ${log2E} * two.x);
          second = fmaf(second, scale2, ${log2E} * two.y);
        }
      }
    };`;

/** The masks of a query's two keys are at one address. */
const elementsOfColumns = (stayed: string): string => `
    auto addMask = [&](int visited) {
#pragma unroll
      for (unsigned i = 0; i < tileN / 4; i++) {
        const int row = visited + (int)(i / 2 * 8 + 2 * member + i % 2);
        const float* const maskOfRow = maskPair + offsetOf(row, maskRow) + ${stayed};
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
          float& score = scores[i / 2 * 4 + 2 * half + i % 2];
          const bool exists = row < rows && ${stayed} + 8 * (int)half < columns;
          score = fmaf(score, scale2, ${log2E} * (exists ? maskOfRow[8 * half] : 0));
        }
      }
    };`;
