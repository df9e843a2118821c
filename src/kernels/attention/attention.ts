/** Scaled dot product attention as kernel calls, forward and backward. Problems are validated before they are lowered. */

import type { KernelCall } from "../kernel-call.js";
import { type BackwardProblem, type ForwardProblem, ProblemCheck, rejectGroupedHeads } from "./problem.js";

/**
 * `out = softmax(scale · query · keyᵀ + mask) · value`, for every batch and head; the probabilities or the statistics stay for
 * `attentionBackwardCalls`. The bits do not depend on the number of threads.
 *
 * A row that is masked completely becomes NaN, in its probabilities and in `out`: probabilities of no elements cannot sum to 1, and zeros
 * would hide the mistake. Elements hidden by a causal mask have probability 0; their scores should be finite.
 *
 * ```js
 * const strides = { batchStride: rows * heads * width, headStride: width, rowStride: heads * width }; // [B, S, H, D]
 * const shape = { dtype: "f32", batch, heads, rows, columns: rows, width, valueWidth: width };
 * const calls = attentionCalls({
 *   ...shape,
 *   query: { storage: q, ...strides },
 *   key: { storage: k, ...strides },
 *   value: { storage: v, ...strides },
 *   out: { storage: y, ...strides },
 *   probabilities: runtime.arena.allocate(batch * heads * rows * rows * 4, "probabilities"),
 *   scale: 1 / Math.sqrt(width),
 * });
 * submit(runtime, calls);
 * ```
 */
export function attentionCalls(problem: ForwardProblem, op = "attention"): readonly KernelCall[] {
  const { batch, heads, rows, columns, width, valueWidth } = problem;
  const { query, key, value, mask, out } = problem;
  const check = new ProblemCheck("attend", problem);
  check.requireInput("query", query, rows, width);
  check.requireInput("key", key, columns, width);
  check.requireInput("value", value, columns, valueWidth);
  if (mask) check.requireMask(mask);
  check.requireOutput("out", out, rows, valueWidth);
  if ("statistics" in problem) {
    check.requireRows("statistics", problem.statistics);
    check.requireDropout(problem, false);
  } else {
    rejectGroupedHeads("attend", problem);
    check.requireScores("probabilities", problem.probabilities);
  }
  return batch * heads === 0 ? [] : [{ kind: "attention", op, problem }];
}

/**
 * The gradients of query, key and value from the gradient of `out`. The previous contents of the gradients' memory are not read. An input
 * that is broadcast by a stride of 0 gets one gradient per use, which the caller sums.
 */
export function attentionBackwardCalls(
  problem: BackwardProblem,
  op = "attention backward",
): readonly KernelCall[] {
  const { batch, heads, rows, columns, width, valueWidth } = problem;
  const { query, key, value, outGradient, scoreGradient } = problem;
  const { queryGradient, keyGradient, valueGradient } = problem;
  const check = new ProblemCheck("attendBackward", problem);
  check.requireInput("query", query, rows, width);
  check.requireInput("key", key, columns, width);
  check.requireInput("value", value, columns, valueWidth);
  check.requireInput("outGradient", outGradient, rows, valueWidth);
  if ("statistics" in problem) {
    if (problem.mask) check.requireMask(problem.mask);
    check.requireInput("out", problem.out, rows, valueWidth);
    check.requireRows("statistics", problem.statistics);
    check.requireRows("deltas", problem.deltas);
    check.requireDropout(problem, true);
  } else {
    rejectGroupedHeads("attendBackward", problem);
    check.requireScores("probabilities", problem.probabilities);
  }
  check.requireOutput("queryGradient", queryGradient, rows, width);
  check.requireOutput("keyGradient", keyGradient, columns, width);
  check.requireOutput("valueGradient", valueGradient, columns, valueWidth);
  if (scoreGradient) check.requireScores("scoreGradient", scoreGradient);
  return batch * heads === 0 ? [] : [{ kind: "attention-backward", op, problem }];
}
