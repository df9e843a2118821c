/** The forward pass of attention over short sequences on CUDA: one block per (batch, head), every operand read and written once. */

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

const inputs = ["query", "key", "value"] as const;

/** The arguments, in order. */
export function smallForwardParameters(dtype: GemmDtype, access: "out" | "partial-out") {
  return {
    query: "in",
    key: "in",
    value: "in",
    /** Ignored without a mask. */
    mask: "in",
    out: access,
    probabilities: access,
    scale: dtype,
  } as const;
}

/** The properties that the code is specialised on, besides the sizes. */
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
  const functions = [pointTo, declareTeam, moveRows, multiplyRows, multiplyWeights, forScores];
  return cudaKernel({
    name: nameOf("attention", elements),
    parameters: smallForwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, inputs, ["out"]),
    threads: plan.threads,
    declarations: [
      declareElement(
        dtype,
        "exponential",
        "maximum",
        "negativeInfinity",
        "multiplyAdd",
        "dot",
        "axpy",
        "laneOf",
        "zero",
      ),
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
  // [paddedTargets, columns]: the scores S, then the probabilities P.
  __shared__ Vector weights[paddedTargets * columnVectors];
  Scalar* const scores = reinterpret_cast<Scalar*>(weights);
  constexpr unsigned stride = columnVectors * lanes;
  const Team<teamRows, threads> team;
${declarePair("blockIdx.x")}
${declareInputs(...inputs)}
${declarePairs("Result", "out")}
${declarePairs("Scalar", "mask")}

  const auto teamQueries = loadTeamRows<width>(queryPair, queryRow, team);
  const auto stagedKeys = stage<columns, width>(keyPair, keyRow);
  const auto stagedValues = stage<columns, valueWidth>(valuePair, valueRow);
  stagedKeys.store(keys);
  stagedValues.store(values);
  syncBlock();

  Scalar* const teamScores = scores + team.first * stride;
  multiplyRows(teamQueries, keys, 0, team.lane, [&](unsigned r, unsigned column, Scalar sum) {
    Scalar score = sum * scale;
    if (hasMask && team.has(r, rows)) score += maskPair[(long long)(team.first + r) * maskRow + (long long)column * maskColumn];
    teamScores[r * stride + column] = score;
  });
  __syncwarp();

  Scalar* const laneScores = teamScores + team.lane;
  Scalar* const laneProbabilities = probabilities + (pair * rows + team.first) * columns + team.lane;
  Scalar rowMax[teamRows], total[teamRows], probs[teamRows][laneColumns];
  for (unsigned r = 0; r < teamRows; r++) rowMax[r] = negativeInfinity(), total[r] = 0;
  forScores(team, [&](unsigned r, unsigned s, bool isVisible) {
    probs[r][s] = isVisible ? laneScores[scoreOffset(r, s, stride)] : negativeInfinity();
    rowMax[r] = maximum(rowMax[r], probs[r][s]);
  });
  reduceTeam(rowMax, [](Scalar a, Scalar b) { return maximum(a, b); });
  forScores(team, [&](unsigned r, unsigned s, bool isVisible) {
    probs[r][s] = isVisible ? exponential(probs[r][s] - rowMax[r]) : 0;
    total[r] += probs[r][s];
  });
  reduceTeam(total, [](Scalar a, Scalar b) { return a + b; });
  for (unsigned r = 0; r < teamRows; r++) total[r] = 1 / total[r];
  forScores(team, [&](unsigned r, unsigned s, bool) {
    const Scalar probability = probs[r][s] * total[r];
    laneScores[scoreOffset(r, s, stride)] = probability;
    if (team.has(r, rows)) laneProbabilities[scoreOffset(r, s, columns)] = probability;
  });
  __syncwarp();

  const auto teamOut = outPair + (long long)team.first * outRow;
  const Vector* const teamWeights = weights + team.first * columnVectors;
  multiplyWeights<teamRows, Share<valueWidth>::steps>(
      teamWeights, columns, values, valueVectors, team.lane, [&](unsigned t, unsigned v, Vector sum) {
        if (team.has(t, rows)) Row::store(teamOut + (long long)t * outRow, valueWidth, v, sum);
      });`;
