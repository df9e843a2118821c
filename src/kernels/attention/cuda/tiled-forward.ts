/** The forward pass of attention over sequences of any length on CUDA: a block computes the scores of a strip of rows, then the result. */

import type { KernelSource } from "../../../driver/index.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import type { GemmDtype } from "../../gemm/cpu/element.js";
import { declareElement, declareMemory, type Elements, nameOf, pointersOf, scalarOf } from "./element.js";
import {
  declareInputs,
  declareMemories,
  declarePair,
  declarePairs,
  pointTo,
  strideParameters,
} from "./parameters.js";
import { forStripRows, multiplyTiles, tiledThreads } from "./tiled-code.js";

const inputs = ["query", "key", "value"] as const;

/** The arguments, in order. */
export function tiledForwardParameters(dtype: GemmDtype, access: "out" | "partial-out") {
  return {
    query: "in",
    key: "in",
    value: "in",
    /** Ignored if `hasMask` is 0. */
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

export function tiledForwardKernel(elements: Elements, access: "out" | "partial-out"): KernelSource {
  const { dtype } = elements;
  return cudaKernel({
    name: nameOf("attention.tiled", elements),
    parameters: tiledForwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, inputs, ["out"]),
    threads: tiledThreads,
    declarations: [
      declareElement(dtype, "exponential", "maximum", "negativeInfinity", "multiplyAdd", "laneOf"),
      declareMemory(elements),
      declareMemories(false, elements),
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
${declareInputs(...inputs)}
${declarePairs("Scalar", "mask")}
${declarePairs("Stored", "out")}
  Scalar* const scores = probabilities + (pair * rows + firstRow) * columns;
  const unsigned maxVisible = visibleColumns(firstRow + count - 1, columns, isCausal);

  const auto queries = matrixOf(queryPair + (long long)firstRow * queryRow, queryRow, 1);
  multiply(tiles, queries, matrixOf(keyPair, keyRow, 1), count, maxVisible, width, [&](unsigned row, unsigned column, Scalar sum) {
    Scalar score = sum * scale;
    if (hasMask != 0) score += maskPair[(long long)(firstRow + row) * maskRow + (long long)column * maskColumn];
    scores[(long long)row * columns + column] = score;
  });
  __syncthreads();

  forRows(count, [&](unsigned row, unsigned lane) {
    Scalar* const line = scores + (long long)row * columns;
    const unsigned visible = visibleColumns(firstRow + row, columns, isCausal);
    Scalar rowMax = negativeInfinity();
    for (unsigned column = lane; column < visible; column += 32) rowMax = maximum(rowMax, line[column]);
    for (unsigned step = 16; step > 0; step /= 2) {
      rowMax = maximum(rowMax, __shfl_xor_sync(0xffffffffu, rowMax, step));
    }
    Scalar total = 0;
    for (unsigned column = lane; column < visible; column += 32) {
      const Scalar prob = exponential(line[column] - rowMax);
      line[column] = prob;
      total += prob;
    }
    for (unsigned step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    for (unsigned column = lane; column < columns; column += 32) line[column] = column < visible ? line[column] / total : 0;
  });
  __syncthreads();

  const auto weights = matrixOf(scores, columns, 1);
  multiply(tiles, weights, matrixOf(valuePair, 1, valueRow), count, valueWidth, maxVisible, [&](unsigned row, unsigned d, Scalar sum) {
    outPair[(long long)(firstRow + row) * outRow + d] = Rounding::of(sum);
  });`;
