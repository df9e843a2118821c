/**
 * Attention's gradients over sequences of any length on CUDA, in two kernels: strips of rows make the gradients of the
 * scores and of the queries; with those whole, strips of columns make the keys' and the values'. Each column's sums are
 * one block's, so there is nothing to add up between blocks.
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
      declareElement(dtype, "fused", "partOf"),
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
      declareElement(dtype, "fused", "partOf"),
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
  const Scalar* const shares = probabilities + (pair * rows + firstRow) * columns;
  Scalar* const gains = scoreGradient + (pair * rows + firstRow) * columns;
  const unsigned maxSeen = seenBy(firstRow + count - 1, columns, isCausal);

  const auto arriving = matrixOf(outGradientPair + (long long)firstRow * outGradientRow, outGradientRow, 1);
  multiply(tiles, arriving, matrixOf(valuePair, valueRow, 1), count, maxSeen, valueWidth, [&](unsigned row, unsigned column, Scalar sum) {
    gains[(long long)row * columns + column] = sum;
  });
  __syncthreads();

  forRows(count, [&](unsigned row, unsigned lane) {
    const Scalar* const share = shares + (long long)row * columns;
    Scalar* const gain = gains + (long long)row * columns;
    const unsigned seen = seenBy(firstRow + row, columns, isCausal);
    Scalar mean = 0;
    for (unsigned column = lane; column < seen; column += 32) mean = fused(share[column], gain[column], mean);
    for (unsigned step = 16; step > 0; step /= 2) mean += __shfl_xor_sync(0xffffffffu, mean, step);
    for (unsigned column = lane; column < columns; column += 32) {
      gain[column] = column < seen ? share[column] * (gain[column] - mean) : 0;
    }
  });
  __syncthreads();

  multiply(tiles, matrixOf(gains, columns, 1), matrixOf(keyPair, 1, keyRow), count, width, maxSeen, [&](unsigned row, unsigned place, Scalar sum) {
    queryGradientPair[(long long)(firstRow + row) * queryGradientRow + place] = Rounding::of(sum * scale);
  });`;

const columnsBody = `
  __shared__ Tiles tiles;
  const unsigned firstColumn = blockIdx.x % strips * strip;
  const unsigned count = columns - firstColumn < strip ? columns - firstColumn : strip;
${declarePair("blockIdx.x / strips")}
${declareInputs("query", "outGradient")}
${declarePairs("Stored", "keyGradient", "valueGradient")}
  // The first row that sees a column is, under a causal mask, the one of its own number.
  const unsigned firstRow = isCausal == 0 ? 0 : firstColumn < rows ? firstColumn : rows;
  const unsigned terms = rows - firstRow;
  const long long corner = (pair * rows + firstRow) * columns + firstColumn;

  const auto queries = matrixOf(queryPair + (long long)firstRow * queryRow, 1, queryRow);
  multiply(tiles, matrixOf(scoreGradient + corner, 1, columns), queries, count, width, terms, [&](unsigned column, unsigned place, Scalar sum) {
    keyGradientPair[(long long)(firstColumn + column) * keyGradientRow + place] = Rounding::of(sum * scale);
  });
  const auto arriving = matrixOf(outGradientPair + (long long)firstRow * outGradientRow, 1, outGradientRow);
  multiply(tiles, matrixOf(probabilities + corner, 1, columns), arriving, count, valueWidth, terms, [&](unsigned column, unsigned place, Scalar sum) {
    valueGradientPair[(long long)(firstColumn + column) * valueGradientRow + place] = Rounding::of(sum);
  });`;
