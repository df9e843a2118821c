/** Attention over sequences of any length on CUDA, forward: a block makes the scores of a strip of rows, and then uses them. */

import type { KernelSource } from "../../../driver/index.js";
import { cudaKernel } from "../../cuda-function.js";
import type { Dtype } from "../../dtypes.js";
import type { GemmDtype } from "../../gemm/element.js";
import { declareElement, declareStored, nameOf, scalarOf, storedOf } from "./element.js";
import { declarePair, declarePairs, pointTo, strideParameters } from "./parameters.js";
import { forStripRows, multiplyTiles, tiledThreads } from "./tiled-code.js";

/** The arguments, in order. */
export function tiledForwardParameters(dtype: GemmDtype, access: "out" | "part") {
  return {
    query: "in",
    key: "in",
    value: "in",
    /** Anything where `hasMask` is 0. */
    mask: "in",
    out: access,
    probabilities: access,
    heads: "u32",
    rows: "u32",
    columns: "u32",
    width: "u32",
    valueWidth: "u32",
    strips: "u32",
    ...strideParameters("query", "key", "value", "mask", "out"),
    maskColumn: "u32",
    scale: dtype,
    isCausal: "u32",
    hasMask: "u32",
  } as const;
}

export function tiledForwardKernel(
  dtype: GemmDtype,
  resultDtype: Dtype,
  access: "out" | "part",
): KernelSource {
  return cudaKernel({
    name: nameOf("attention.tiled", dtype, resultDtype),
    parameters: tiledForwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: { out: storedOf(resultDtype) },
    threads: tiledThreads,
    declarations: [
      declareElement(dtype, "power", "larger", "lowest", "fused", "partOf"),
      declareStored(dtype, resultDtype),
      ...[pointTo, multiplyTiles, forStripRows],
    ].join("\n"),
    body,
  });
}

const body = `
  __shared__ Tiles tiles;
  const unsigned firstRow = blockIdx.x % strips * strip;
  const unsigned count = rows - firstRow < strip ? rows - firstRow : strip;
${declarePair("blockIdx.x / strips")}
${declarePairs("Scalar", "query", "key", "value", "mask")}
${declarePairs("Stored", "out")}
  Scalar* const scores = probabilities + (pair * rows + firstRow) * columns;
  const unsigned mostSeen = seenBy(firstRow + count - 1, columns, isCausal);

  const Matrix queries = {queryPair + (long long)firstRow * queryRow, queryRow, 1};
  multiply(tiles, queries, {keyPair, keyRow, 1}, count, mostSeen, width, [&](unsigned row, unsigned column, Scalar sum) {
    Scalar score = sum * scale;
    if (hasMask != 0) score += maskPair[(long long)(firstRow + row) * maskRow + (long long)column * maskColumn];
    scores[(long long)row * columns + column] = score;
  });
  __syncthreads();

  forRows(count, [&](unsigned row, unsigned lane) {
    Scalar* const line = scores + (long long)row * columns;
    const unsigned seen = seenBy(firstRow + row, columns, isCausal);
    Scalar largest = lowest();
    for (unsigned column = lane; column < seen; column += 32) largest = larger(largest, line[column]);
    for (unsigned step = 16; step > 0; step /= 2) {
      largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    }
    Scalar total = 0;
    for (unsigned column = lane; column < seen; column += 32) {
      const Scalar share = power(line[column] - largest);
      line[column] = share;
      total += share;
    }
    for (unsigned step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    for (unsigned column = lane; column < columns; column += 32) line[column] = column < seen ? line[column] / total : 0;
  });
  __syncthreads();

  const Matrix weights = {scores, columns, 1};
  multiply(tiles, weights, {valuePair, 1, valueRow}, count, valueWidth, mostSeen, [&](unsigned row, unsigned place, Scalar sum) {
    outPair[(long long)(firstRow + row) * outRow + place] = Rounding::of(sum);
  });`;
