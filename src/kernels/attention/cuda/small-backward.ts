/** Attention's gradients over short sequences on CUDA: everything of a pair is read once and written once. */

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
import { declareConstants, declareTeam, forScores, moveRows, multiplyRows, sumTerms } from "./small-code.js";
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

/** What is printed into the code besides the sizes. */
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
  const functions = [pointTo, declareTeam, moveRows, multiplyRows, sumTerms, forScores];
  return cudaKernel({
    name: nameOf("attention.backward", elements),
    parameters: smallBackwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, inputs, results),
    threads: plan.threads,
    declarations: [
      declareElement(dtype, "fused", "dot", "addWeighted", "partOf", "zero"),
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
  __shared__ Vector values[columns * valueVectors], arriving[rows * valueVectors];
  // Gradients of the scores, times the scale, are [heldTargets, columns], and [heldTargets, rows] as the probabilities are.
  __shared__ Vector gains[heldTargets * columnVectors];
  __shared__ Vector gainsAcross[heldTargets * rowVectors], sharesAcross[heldTargets * rowVectors];
  Scalar* const gain = reinterpret_cast<Scalar*>(gains);
  Scalar* const gainAcross = reinterpret_cast<Scalar*>(gainsAcross);
  Scalar* const shareAcross = reinterpret_cast<Scalar*>(sharesAcross);
  constexpr unsigned stride = columnVectors * lanes, strideAcross = rowVectors * lanes;
${declarePair("blockIdx.x")}
${declareInputs(...inputs)}
${declarePairs("Result", ...results)}

  const auto fromArriving = stage<rows, valueWidth>(outGradientPair, outGradientRow);
  const auto fromValue = stage<columns, valueWidth>(valuePair, valueRow);
  const auto fromQuery = stage<rows, width>(queryPair, queryRow);
  const auto fromKey = stage<columns, width>(keyPair, keyRow);
  // All teams of the block share the rows between the scores' gradients and their sums.
  const Team<scoreRows, threads> scoring;
  const long long firstScore = (pair * rows + scoring.first) * columns + scoring.lane;
  Scalar shares[scoreRows][laneColumns];
  forScores(scoring, [&](unsigned r, unsigned own, bool isSeen) {
    const bool isThere = isSeen && scoring.has(r, rows);
    shares[r][own] = isThere ? probabilities[firstScore + placeOf(r, own, columns)] : 0;
  });
  fromArriving.store(arriving);
  fromValue.store(values);
  fromQuery.store(queries);
  fromKey.store(keys);
  meet();

  const unsigned group = threadIdx.x / groupThreads;
  const Team<teamRows, groupThreads> summing;
  const auto ownArriving = loadOwn<valueWidth>(arriving, valueVectors, summing);
  Scalar* const teamGain = gain + summing.first * stride;
  multiplyRows(ownArriving, values, group, summing.lane, [&](unsigned r, unsigned column, Scalar sum) {
    teamGain[r * stride + column] = sum;
  });
  meet();

  Scalar* const ownGain = gain + scoring.first * stride + scoring.lane;
  const unsigned ownAcross = scoring.lane * strideAcross + scoring.first;
  Scalar mean[scoreRows], gained[scoreRows][laneColumns];
  for (unsigned r = 0; r < scoreRows; r++) mean[r] = 0;
  forScores(scoring, [&](unsigned r, unsigned own, bool isSeen) {
    gained[r][own] = isSeen && scoring.has(r, rows) ? ownGain[placeOf(r, own, stride)] : 0;
    mean[r] = fused(shares[r][own], gained[r][own], mean[r]);
  });
  reduceTeam(mean, [](Scalar a, Scalar b) { return a + b; });
  forScores(scoring, [&](unsigned r, unsigned own, bool isSeen) {
    const Scalar gradient = isSeen ? shares[r][own] * (gained[r][own] - mean[r]) : 0;
    if (scoring.has(r, rows)) {
      const unsigned across = ownAcross + own * teamLanes * strideAcross + r;
      ownGain[placeOf(r, own, stride)] = gradient * scale;
      gainAcross[across] = gradient * scale;
      shareAcross[across] = shares[r][own];
      scoreGradient[firstScore + placeOf(r, own, columns)] = gradient;
    }
  });
  meet();

  // A group sums one of the gradients. They are of one form, so that the code is there once.
  const bool isQuery = group == 0, isValue = group == 2;
  const Team<teamTargets, groupThreads> target;
  const unsigned targets = isQuery ? rows : columns, terms = isQuery ? columns : rows;
  const unsigned vectors = isValue ? valueVectors : widthVectors, length = isValue ? valueWidth : width;
  const Vector* const weights = isQuery ? gains : isValue ? sharesAcross : gainsAcross;
  const Vector* const from = isQuery ? keys : isValue ? arriving : queries;
  Result* const to = isQuery ? queryGradientPair : isValue ? valueGradientPair : keyGradientPair;
  const long long toRow = isQuery ? queryGradientRow : isValue ? valueGradientRow : keyGradientRow;
  const Vector* const teamWeights = weights + target.first * (isQuery ? columnVectors : rowVectors);
  Result* const teamTo = to + target.first * toRow;
  constexpr unsigned steps = Share<(width > valueWidth ? width : valueWidth)>::steps;
  sumTerms<teamTargets, steps>(
      teamWeights, terms, from, vectors, target.lane, [&](unsigned t, unsigned place, Vector sum) {
        if (target.has(t, targets)) Row::store(teamTo + t * toRow, length, place, sum);
      });`;
