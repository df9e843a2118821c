/** Attention over short sequences on CUDA, forward: everything of a pair is read once and written once. */

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

const inputs = ["query", "key", "value"] as const;

/** The arguments, in order. */
export function smallForwardParameters(dtype: GemmDtype, access: "out" | "partial-out") {
  return {
    query: "in",
    key: "in",
    value: "in",
    /** Anything where there is none. */
    mask: "in",
    out: access,
    probabilities: access,
    scale: dtype,
  } as const;
}

/** What is printed into the code besides the sizes. */
export interface ForwardFacts extends Record<string, boolean> {
  readonly areVectors: boolean;
  readonly isCausal: boolean;
  readonly hasMask: boolean;
}

export function smallForwardKernel(
  elements: Elements,
  access: "out" | "partial-out",
  plan: SmallPlan,
  facts: ForwardFacts,
  strides: Strides<(typeof inputs)[number] | "mask" | "out"> & { readonly maskColumn: number },
): KernelSource {
  const { dtype } = elements;
  const functions = [pointTo, declareTeam, moveRows, multiplyRows, sumTerms, forScores];
  return cudaKernel({
    name: nameOf("attention", elements),
    parameters: smallForwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, inputs, ["out"]),
    threads: plan.threads,
    declarations: [
      declareElement(dtype, "power", "larger", "lowest", "fused", "dot", "addWeighted", "partOf", "zero"),
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
  __shared__ Vector keys[columns * widthVectors], values[columns * valueVectors];
  // [heldTargets, columns]: the scores, and then the probabilities.
  __shared__ Vector weights[heldTargets * columnVectors];
  Scalar* const scores = reinterpret_cast<Scalar*>(weights);
  constexpr unsigned stride = columnVectors * lanes;
  const Team<teamRows, threads> team;
${declarePair("blockIdx.x")}
${declareInputs(...inputs)}
${declarePairs("Result", "out")}
${declarePairs("Scalar", "mask")}

  const auto ownQueries = loadOwn<width>(queryPair, queryRow, team);
  const auto fromKey = stage<columns, width>(keyPair, keyRow);
  const auto fromValue = stage<columns, valueWidth>(valuePair, valueRow);
  fromKey.store(keys);
  fromValue.store(values);
  meet();

  Scalar* const teamScores = scores + team.first * stride;
  multiplyRows(ownQueries, keys, 0, team.lane, [&](unsigned r, unsigned column, Scalar sum) {
    Scalar score = sum * scale;
    if (hasMask && team.has(r, rows)) score += maskPair[(long long)(team.first + r) * maskRow + (long long)column * maskColumn];
    teamScores[r * stride + column] = score;
  });
  __syncwarp();

  Scalar* const ownScores = teamScores + team.lane;
  Scalar* const ownProbabilities = probabilities + (pair * rows + team.first) * columns + team.lane;
  Scalar largest[teamRows], total[teamRows], shares[teamRows][laneColumns];
  for (unsigned r = 0; r < teamRows; r++) largest[r] = lowest(), total[r] = 0;
  forScores(team, [&](unsigned r, unsigned own, bool isSeen) {
    shares[r][own] = isSeen ? ownScores[placeOf(r, own, stride)] : lowest();
    largest[r] = larger(largest[r], shares[r][own]);
  });
  reduceTeam(largest, [](Scalar a, Scalar b) { return larger(a, b); });
  forScores(team, [&](unsigned r, unsigned own, bool isSeen) {
    shares[r][own] = isSeen ? power(shares[r][own] - largest[r]) : 0;
    total[r] += shares[r][own];
  });
  reduceTeam(total, [](Scalar a, Scalar b) { return a + b; });
  for (unsigned r = 0; r < teamRows; r++) total[r] = 1 / total[r];
  forScores(team, [&](unsigned r, unsigned own, bool) {
    const Scalar probability = shares[r][own] * total[r];
    ownScores[placeOf(r, own, stride)] = probability;
    if (team.has(r, rows)) ownProbabilities[placeOf(r, own, columns)] = probability;
  });
  __syncwarp();

  const auto teamOut = outPair + (long long)team.first * outRow;
  const Vector* const teamWeights = weights + team.first * columnVectors;
  sumTerms<teamRows, Share<valueWidth>::steps>(
      teamWeights, columns, values, valueVectors, team.lane, [&](unsigned t, unsigned place, Vector sum) {
        if (team.has(t, rows)) Row::store(teamOut + (long long)t * outRow, valueWidth, place, sum);
      });`;
