/** Attention over short sequences on CUDA, forward: everything of a pair is read once and written once. */

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

const inputs = ["query", "key", "value"] as const;

/** The arguments, in order. */
export function smallForwardParameters(dtype: GemmDtype, access: "out" | "part") {
  return {
    query: "in",
    key: "in",
    value: "in",
    /** Anything where there is none. */
    mask: "in",
    out: access,
    probabilities: access,
    heads: "u32",
    ...strideParameters("query", "key", "value", "mask", "out"),
    maskColumn: "u32",
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
  access: "out" | "part",
  plan: SmallPlan,
  facts: ForwardFacts,
): KernelSource {
  const { dtype } = elements;
  const functions = [pointTo, moveRows, multiplyRows, sumTerms, forRows];
  return cudaKernel({
    name: nameOf("attention", elements),
    parameters: smallForwardParameters(dtype, access),
    elements: scalarOf(dtype),
    pointers: pointersOf(elements, inputs, ["out"]),
    threads: plan.threads,
    declarations: [
      declareElement(dtype, "power", "larger", "lowest", "fused", "dot", "addWeighted", "partOf", "zero"),
      declareMemory(elements),
      declareConstants({ ...plan, targetTile, ...facts }, ...functions, body),
      declareMemories(facts.areVectors, elements),
      `typedef ${facts.areVectors ? "StoredVector" : "Stored"} Result;`,
      ...functions,
    ].join("\n"),
    body,
  });
}

const body = `
  __shared__ Vector queries[rows * widthVectors], keys[columns * widthVectors], values[columns * valueVectors];
  // [columns, rows]: a term's weights for all rows lie side by side.
  __shared__ Vector weights[columns * rowVectors];
  Scalar* const scores = reinterpret_cast<Scalar*>(weights);
  constexpr unsigned scoreStride = rowVectors * lanes;
${declarePair("blockIdx.x")}
${declareInputs(...inputs)}
${declarePairs("Result", "out")}
${declarePairs("Scalar", "mask")}

  const auto fromQuery = stage<rows, width>(queryPair, queryRow);
  const auto fromKey = stage<columns, width>(keyPair, keyRow);
  const auto fromValue = stage<columns, valueWidth>(valuePair, valueRow);
  fromQuery.store(queries, widthVectors);
  fromKey.store(keys, widthVectors);
  fromValue.store(values, valueVectors);
  __syncthreads();

  multiplyRows<widthVectors>(queries, keys, [&](unsigned row, unsigned column, Scalar sum) {
    Scalar score = sum * scale;
    if (hasMask) score += maskPair[(long long)row * maskRow + (long long)column * maskColumn];
    scores[column * scoreStride + row] = score;
  });
  __syncthreads();

  forRows([&](unsigned row, unsigned lane, bool isThere) {
    const unsigned seen = seenBy(row);
    Scalar largest = lowest();
    forLane(lane, [&](unsigned column, unsigned) {
      if (isThere && column < seen) largest = larger(largest, scores[column * scoreStride + row]);
    });
    for (unsigned step = rowLanes / 2; step > 0; step /= 2) {
      largest = larger(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    }
    Scalar total = 0;
    Scalar shares[laneColumns];
    forLane(lane, [&](unsigned column, unsigned own) {
      shares[own] = 0;
      if (isThere && column < seen) shares[own] = power(scores[column * scoreStride + row] - largest);
      total += shares[own];
    });
    for (unsigned step = rowLanes / 2; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    // The compiler may let lanes behind the last row read there too, for nothing: all reads come before the first write.
    __syncthreads();
    Scalar* const line = probabilities + (pair * rows + row) * columns;
    forLane(lane, [&](unsigned column, unsigned own) {
      if (isThere && column < columns) {
        const Scalar probability = column < seen ? shares[own] / total : 0;
        scores[column * scoreStride + row] = probability;
        line[column] = probability;
      }
    });
  });
  __syncthreads();

  forTasks<(rows + targetTile - 1) / targetTile * valueVectors>([&](unsigned task, unsigned) {
    const unsigned place = task % valueVectors, first = task / valueVectors * targetTile;
    sumTerms(weights + first / lanes, rowVectors, values + place, valueVectors, columns, [&](unsigned t, Vector sum) {
      if (rows % targetTile == 0 || first + t < rows) {
        storeVector<valueWidth>(outPair + (long long)(first + t) * outRow, place, sum);
      }
    });
  });`;
