/** Attention's gradients over short sequences on CUDA: everything of a pair is read once and written once. */

import type { KernelSource } from "../../../driver/index.js";
import { cudaKernel } from "../../cuda-function.js";
import type { GemmDtype } from "../../gemm/element.js";
import { declareElement, declareMemory, type Elements, nameOf, pointersOf, scalarOf } from "./element.js";
import {
  declareInputs,
  declareMemories,
  declarePair,
  declarePairs,
  pointTo,
  strideParameters,
} from "./parameters.js";
import { declareConstants, forRows, moveRows, multiplyRows, sumTerms } from "./small-code.js";
import { type SmallPlan, targetTile } from "./small-plan.js";

const inputs = ["query", "key", "value", "outGradient"] as const;
const results = ["queryGradient", "keyGradient", "valueGradient"] as const;

/** The arguments, in order. */
export function smallBackwardParameters(dtype: GemmDtype, access: "out" | "part") {
  return {
    query: "in",
    key: "in",
    value: "in",
    probabilities: "in",
    outGradient: "in",
    queryGradient: access,
    keyGradient: access,
    valueGradient: access,
    scoreGradient: access,
    heads: "u32",
    ...strideParameters(...inputs, ...results),
    scale: dtype,
  } as const;
}

/** What is printed into the code besides the sizes. */
export interface BackwardFacts extends Record<string, boolean> {
  readonly areVectors: boolean;
  readonly areScoresVectors: boolean;
  readonly isCausal: boolean;
}

export function smallBackwardKernel(
  elements: Elements,
  access: "out" | "part",
  plan: SmallPlan,
  facts: BackwardFacts,
): KernelSource {
  const { dtype } = elements;
  const functions = [pointTo, moveRows, multiplyRows, sumTerms, forRows];
  return cudaKernel({
    name: nameOf("attention.backward", elements),
    parameters: smallBackwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, inputs, results),
    threads: plan.threads,
    declarations: [
      declareElement(dtype, "fused", "dot", "addWeighted", "scaled", "partOf", "zero"),
      declareMemory(elements),
      declareConstants({ ...plan, targetTile, ...facts }, ...functions, body),
      declareMemories(facts.areVectors, elements),
      `typedef ${facts.areVectors ? "StoredVector" : "Stored"} Result;`,
      `typedef ${facts.areScoresVectors ? "Vector" : "Scalar"} ScoreMemory;`,
      ...functions,
    ].join("\n"),
    body,
  });
}

const body = `
  __shared__ Vector queries[rows * widthVectors], keys[columns * widthVectors];
  __shared__ Vector values[columns * valueVectors], arriving[rows * valueVectors];
  // Probabilities and gradients of the scores are [rows, columns], and the latter [columns, rows] too.
  __shared__ Vector shares[rows * columnVectors], gains[rows * columnVectors], gainsAcross[columns * rowVectors];
  const Scalar* const share = reinterpret_cast<const Scalar*>(shares);
  Scalar* const gain = reinterpret_cast<Scalar*>(gains);
  Scalar* const gainAcross = reinterpret_cast<Scalar*>(gainsAcross);
  constexpr unsigned stride = columnVectors * lanes, strideAcross = rowVectors * lanes;
  constexpr unsigned scoreRow = areScoresVectors ? columns / lanes : columns;
${declarePair("blockIdx.x")}
${declareInputs(...inputs)}
${declarePairs("Result", ...results)}

  const ScoreMemory* const sharesPair = reinterpret_cast<const ScoreMemory*>(probabilities + pair * rows * columns);
  const auto fromArriving = stage<rows, valueWidth>(outGradientPair, outGradientRow);
  const auto fromValue = stage<columns, valueWidth>(valuePair, valueRow);
  const auto fromShares = stage<rows, columns>(sharesPair, scoreRow);
  const auto fromQuery = stage<rows, width>(queryPair, queryRow);
  const auto fromKey = stage<columns, width>(keyPair, keyRow);
  fromArriving.store(arriving, valueVectors);
  fromValue.store(values, valueVectors);
  fromShares.store(shares, columnVectors);
  fromQuery.store(queries, widthVectors);
  fromKey.store(keys, widthVectors);
  __syncthreads();

  multiplyRows<valueVectors>(arriving, values, [&](unsigned row, unsigned column, Scalar sum) {
    gain[row * stride + column] = sum;
  });
  constexpr unsigned columnTiles = (columns + targetTile - 1) / targetTile;
  forTasks<columnTiles * valueVectors>([&](unsigned task, unsigned) {
    const unsigned place = task % valueVectors, first = task / valueVectors * targetTile;
    sumTerms(shares + first / lanes, columnVectors, arriving + place, valueVectors, rows, [&](unsigned t, Vector sum) {
      if (columns % targetTile == 0 || first + t < columns) {
        storeVector<valueWidth>(valueGradientPair + (long long)(first + t) * valueGradientRow, place, sum);
      }
    });
  });
  __syncthreads();

  forRows([&](unsigned row, unsigned lane, bool isThere) {
    const unsigned seen = seenBy(row);
    Scalar mean = 0;
    forLane(lane, [&](unsigned column, unsigned) {
      if (isThere && column < seen) mean = fused(share[row * stride + column], gain[row * stride + column], mean);
    });
    for (unsigned step = rowLanes / 2; step > 0; step /= 2) mean += __shfl_xor_sync(0xffffffffu, mean, step);
    Scalar gained[laneColumns];
    forLane(lane, [&](unsigned column, unsigned own) {
      gained[own] = 0;
      if (isThere && column < seen) gained[own] = share[row * stride + column] * (gain[row * stride + column] - mean);
    });
    // The compiler may let lanes behind the last row read there too, for nothing: all reads come before the first write.
    __syncthreads();
    Scalar* const line = scoreGradient + (pair * rows + row) * columns;
    forLane(lane, [&](unsigned column, unsigned own) {
      if (isThere && column < columns) {
        gain[row * stride + column] = gained[own];
        gainAcross[column * strideAcross + row] = gained[own];
        line[column] = gained[own];
      }
    });
  });
  __syncthreads();

  // Queries gain from keys and keys from queries: two sums of one form, so that a warp may have both.
  constexpr unsigned queryTasks = (rows + targetTile - 1) / targetTile * widthVectors;
  forTasks<queryTasks + columnTiles * widthVectors>([&](unsigned task, unsigned) {
    const bool isQuery = task < queryTasks;
    const unsigned own = isQuery ? task : task - queryTasks;
    const unsigned place = own % widthVectors, first = own / widthVectors * targetTile;
    const unsigned terms = isQuery ? columns : rows, targets = isQuery ? rows : columns;
    const unsigned weightVectors = isQuery ? rowVectors : columnVectors;
    Result* const to = isQuery ? queryGradientPair : keyGradientPair;
    const long long toRow = isQuery ? queryGradientRow : keyGradientRow;
    const Vector* const weights = (isQuery ? gainsAcross : gains) + first / lanes;
    sumTerms(weights, weightVectors, (isQuery ? keys : queries) + place, widthVectors, terms, [&](unsigned t, Vector sum) {
      if ((rows % targetTile == 0 && columns % targetTile == 0) || first + t < targets) {
        storeVector<width>(to + (first + t) * toRow, place, scaled(sum, scale));
      }
    });
  });`;
