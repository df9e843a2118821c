/** The backward pass of attention over short sequences on CUDA: one block per (batch, head), every operand read and written once. */

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
  type Strides,
} from "./parameters.js";
import {
  declareConstants,
  declareTeam,
  forScores,
  moveRows,
  multiplyRows,
  multiplyWeights,
} from "./small-code.js";
import type { SmallPlan } from "./small-plan.js";

const inputs = ["query", "key", "value", "outGradient"] as const;
const results = ["queryGradient", "keyGradient", "valueGradient"] as const;

/** The arguments, in order. */
export function smallBackwardParameters(dtype: GemmDtype, access: "out" | "partial-out") {
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
    scale: dtype,
  } as const;
}

/** The properties that the code is specialised on, besides the sizes. */
export interface BackwardFacts extends Record<string, boolean> {
  readonly areVectors: boolean;
  readonly isCausal: boolean;
}

export function smallBackwardKernel(
  elements: Elements,
  access: "out" | "partial-out",
  plan: SmallPlan,
  facts: BackwardFacts,
  strides: Strides<(typeof inputs)[number] | (typeof results)[number]>,
): KernelSource {
  const { dtype } = elements;
  const functions = [pointTo, declareTeam, moveRows, multiplyRows, multiplyWeights, forScores];
  return cudaKernel({
    name: nameOf("attention.backward", elements),
    parameters: smallBackwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, inputs, results),
    threads: plan.threads,
    declarations: [
      declareElement(dtype, "multiplyAdd", "dot", "axpy", "laneOf", "zero"),
      declareMemory(elements),
      declareConstants({ ...plan, ...facts, ...strides }, ...functions, body),
      declareMemories(facts.areVectors, elements),
      `typedef ${facts.areVectors ? "StoredVector" : "Stored"} Result;`,
      ...functions,
    ].join("\n"),
    body,
  });
}

const body = `
  __shared__ Vector queries[rows * widthVectors], keys[columns * widthVectors];
  __shared__ Vector values[columns * valueVectors], outGrads[rows * valueVectors];
  // dS · scale is [paddedTargets, columns]; its transpose and that of P are [paddedTargets, rows].
  __shared__ Vector scoreGrads[paddedTargets * columnVectors];
  __shared__ Vector transposedGrads[paddedTargets * rowVectors], transposedProbs[paddedTargets * rowVectors];
  Scalar* const scoreGrad = reinterpret_cast<Scalar*>(scoreGrads);
  Scalar* const transposedGrad = reinterpret_cast<Scalar*>(transposedGrads);
  Scalar* const transposedProb = reinterpret_cast<Scalar*>(transposedProbs);
  constexpr unsigned stride = columnVectors * lanes, transposedStride = rowVectors * lanes;
${declarePair("blockIdx.x")}
${declareInputs(...inputs)}
${declarePairs("Result", ...results)}

  const auto stagedOutGrads = stage<rows, valueWidth>(outGradientPair, outGradientRow);
  const auto stagedValues = stage<columns, valueWidth>(valuePair, valueRow);
  const auto stagedQueries = stage<rows, width>(queryPair, queryRow);
  const auto stagedKeys = stage<columns, width>(keyPair, keyRow);
  // All teams of the block share the rows of dS.
  const Team<scoreRows, threads> scoring;
  const long long firstScore = (pair * rows + scoring.first) * columns + scoring.lane;
  Scalar probs[scoreRows][laneColumns];
  forScores(scoring, [&](unsigned r, unsigned s, bool isVisible) {
    const bool exists = isVisible && scoring.has(r, rows);
    probs[r][s] = exists ? probabilities[firstScore + scoreOffset(r, s, columns)] : 0;
  });
  stagedOutGrads.store(outGrads);
  stagedValues.store(values);
  stagedQueries.store(queries);
  stagedKeys.store(keys);
  syncBlock();

  const unsigned group = threadIdx.x / groupThreads;
  const Team<teamRows, groupThreads> summing;
  const auto teamOutGrads = loadTeamRows<valueWidth>(outGrads, valueVectors, summing);
  Scalar* const teamGrad = scoreGrad + summing.first * stride;
  multiplyRows(teamOutGrads, values, group, summing.lane, [&](unsigned r, unsigned column, Scalar sum) {
    teamGrad[r * stride + column] = sum;
  });
  syncBlock();

  Scalar* const laneGrad = scoreGrad + scoring.first * stride + scoring.lane;
  const unsigned laneTransposed = scoring.lane * transposedStride + scoring.first;
  Scalar mean[scoreRows], probGrads[scoreRows][laneColumns];
  for (unsigned r = 0; r < scoreRows; r++) mean[r] = 0;
  forScores(scoring, [&](unsigned r, unsigned s, bool isVisible) {
    probGrads[r][s] = isVisible && scoring.has(r, rows) ? laneGrad[scoreOffset(r, s, stride)] : 0;
    mean[r] = multiplyAdd(probs[r][s], probGrads[r][s], mean[r]);
  });
  reduceTeam(mean, [](Scalar a, Scalar b) { return a + b; });
  forScores(scoring, [&](unsigned r, unsigned s, bool isVisible) {
    const Scalar gradient = isVisible ? probs[r][s] * (probGrads[r][s] - mean[r]) : 0;
    if (scoring.has(r, rows)) {
      const unsigned transposedIndex = laneTransposed + s * teamLanes * transposedStride + r;
      laneGrad[scoreOffset(r, s, stride)] = gradient * scale;
      transposedGrad[transposedIndex] = gradient * scale;
      transposedProb[transposedIndex] = probs[r][s];
      scoreGradient[firstScore + scoreOffset(r, s, columns)] = gradient;
    }
  });
  syncBlock();

  // Each group computes one of dQ, dK, dV with the same code.
  const bool isQuery = group == 0, isValue = group == 2;
  const Team<teamTargets, groupThreads> target;
  const unsigned targets = isQuery ? rows : columns, kSize = isQuery ? columns : rows;
  const unsigned vectors = isValue ? valueVectors : widthVectors, length = isValue ? valueWidth : width;
  const Vector* const weights = isQuery ? scoreGrads : isValue ? transposedProbs : transposedGrads;
  const Vector* const from = isQuery ? keys : isValue ? outGrads : queries;
  Result* const to = isQuery ? queryGradientPair : isValue ? valueGradientPair : keyGradientPair;
  const long long toRow = isQuery ? queryGradientRow : isValue ? valueGradientRow : keyGradientRow;
  const Vector* const teamWeights = weights + target.first * (isQuery ? columnVectors : rowVectors);
  Result* const teamTo = to + target.first * toRow;
  constexpr unsigned steps = Share<(width > valueWidth ? width : valueWidth)>::steps;
  multiplyWeights<teamTargets, steps>(
      teamWeights, kSize, from, vectors, target.lane, [&](unsigned t, unsigned v, Vector sum) {
        if (target.has(t, targets)) Row::store(teamTo + t * toRow, length, v, sum);
      });`;
