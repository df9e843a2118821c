/**
 * The backward pass of attention over sequences of any length on CUDA, in two kernels: strips of rows compute dS and dQ, then strips of
 * columns compute dK and dV. Each column belongs to one block, so there is no reduction between blocks.
 */

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

const sizes = {
  heads: "u32",
  rows: "u32",
  columns: "u32",
  width: "u32",
  valueWidth: "u32",
  strips: "u32",
} as const;

/** The arguments of the kernel over rows, in order. */
export function tiledRowsParameters(dtype: GemmDtype, access: "out" | "partial-out") {
  return {
    key: "in",
    value: "in",
    probabilities: "in",
    outGradient: "in",
    queryGradient: access,
    scoreGradient: access,
    ...sizes,
    ...strideParameters("key", "value", "outGradient", "queryGradient"),
    scale: dtype,
    isCausal: "u32",
  } as const;
}

/** The arguments of the kernel over columns, in order. */
export function tiledColumnsParameters(dtype: GemmDtype, access: "out" | "partial-out") {
  return {
    query: "in",
    probabilities: "in",
    scoreGradient: "in",
    outGradient: "in",
    keyGradient: access,
    valueGradient: access,
    ...sizes,
    ...strideParameters("query", "outGradient", "keyGradient", "valueGradient"),
    scale: dtype,
    isCausal: "u32",
  } as const;
}

export function tiledRowsKernel(elements: Elements, access: "out" | "partial-out"): KernelSource {
  const { dtype } = elements;
  return cudaKernel({
    name: nameOf("attention.backward.rows", elements),
    parameters: tiledRowsParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, ["key", "value", "outGradient"], ["queryGradient"]),
    threads: tiledThreads,
    declarations: [
      declareElement(dtype, "multiplyAdd", "laneOf"),
      declareMemory(elements),
      declareMemories(false, elements),
      ...[pointTo, multiplyTiles, forStripRows],
    ].join("\n"),
    body: rowsBody,
  });
}

export function tiledColumnsKernel(elements: Elements, access: "out" | "partial-out"): KernelSource {
  const { dtype } = elements;
  return cudaKernel({
    name: nameOf("attention.backward.columns", elements),
    parameters: tiledColumnsParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, ["query", "outGradient"], ["keyGradient", "valueGradient"]),
    threads: tiledThreads,
    declarations: [
      declareElement(dtype, "multiplyAdd", "laneOf"),
      declareMemory(elements),
      declareMemories(false, elements),
      ...[pointTo, multiplyTiles],
    ].join("\n"),
    body: columnsBody,
  });
}

const rowsBody = `
  __shared__ Tiles tiles;
  const unsigned firstRow = blockIdx.x % strips * strip;
  const unsigned count = rows - firstRow < strip ? rows - firstRow : strip;
${declarePair("blockIdx.x / strips")}
${declareInputs("key", "value", "outGradient")}
${declarePairs("Stored", "queryGradient")}
  const Scalar* const probs = probabilities + (pair * rows + firstRow) * columns;
  Scalar* const scoreGrads = scoreGradient + (pair * rows + firstRow) * columns;
  const unsigned maxVisible = visibleColumns(firstRow + count - 1, columns, isCausal);

  const auto outGrads = matrixOf(outGradientPair + (long long)firstRow * outGradientRow, outGradientRow, 1);
  multiply(tiles, outGrads, matrixOf(valuePair, valueRow, 1), count, maxVisible, valueWidth, [&](unsigned row, unsigned column, Scalar sum) {
    scoreGrads[(long long)row * columns + column] = sum;
  });
  __syncthreads();

  forRows(count, [&](unsigned row, unsigned lane) {
    const Scalar* const prob = probs + (long long)row * columns;
    Scalar* const scoreGrad = scoreGrads + (long long)row * columns;
    const unsigned visible = visibleColumns(firstRow + row, columns, isCausal);
    Scalar mean = 0;
    for (unsigned column = lane; column < visible; column += 32) mean = multiplyAdd(prob[column], scoreGrad[column], mean);
    for (unsigned step = 16; step > 0; step /= 2) mean += __shfl_xor_sync(0xffffffffu, mean, step);
    for (unsigned column = lane; column < columns; column += 32) {
      scoreGrad[column] = column < visible ? prob[column] * (scoreGrad[column] - mean) : 0;
    }
  });
  __syncthreads();

  multiply(tiles, matrixOf(scoreGrads, columns, 1), matrixOf(keyPair, 1, keyRow), count, width, maxVisible, [&](unsigned row, unsigned d, Scalar sum) {
    queryGradientPair[(long long)(firstRow + row) * queryGradientRow + d] = Rounding::of(sum * scale);
  });`;

const columnsBody = `
  __shared__ Tiles tiles;
  const unsigned firstColumn = blockIdx.x % strips * strip;
  const unsigned count = columns - firstColumn < strip ? columns - firstColumn : strip;
${declarePair("blockIdx.x / strips")}
${declareInputs("query", "outGradient")}
${declarePairs("Stored", "keyGradient", "valueGradient")}
  // Under a causal mask, column i is visible from row i on.
  const unsigned firstRow = isCausal == 0 ? 0 : firstColumn < rows ? firstColumn : rows;
  const unsigned kSize = rows - firstRow;
  const long long corner = (pair * rows + firstRow) * columns + firstColumn;

  const auto queries = matrixOf(queryPair + (long long)firstRow * queryRow, 1, queryRow);
  multiply(tiles, matrixOf(scoreGradient + corner, 1, columns), queries, count, width, kSize, [&](unsigned column, unsigned d, Scalar sum) {
    keyGradientPair[(long long)(firstColumn + column) * keyGradientRow + d] = Rounding::of(sum * scale);
  });
  const auto outGrads = matrixOf(outGradientPair + (long long)firstRow * outGradientRow, 1, outGradientRow);
  multiply(tiles, matrixOf(probabilities + corner, 1, columns), outGrads, count, valueWidth, kSize, [&](unsigned column, unsigned d, Scalar sum) {
    valueGradientPair[(long long)(firstColumn + column) * valueGradientRow + d] = Rounding::of(sum);
  });`;
