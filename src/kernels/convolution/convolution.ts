/** Convolutions as kernel calls. Problems are validated before they are lowered. */

import type { KernelCall } from "../kernel-call.js";
import { type ConvolutionProblem, elementCounts, requireConvolution, writtenOperand } from "./problem.js";

/**
 * `y[b, o] = Σ weight[o, c] ⋆ x[b, c] + bias[o]` over the channels c of o's group, or the gradient of `x` or `weight` from that of `y`. The
 * gradient of `x` may have a bias too: a transposed convolution is that gradient.
 * Empty if nothing is written. The order of all additions follows from the shape and the device, so that every run has the same bits.
 */
export function convolutionCalls(problem: ConvolutionProblem, op = "convolution"): readonly KernelCall[] {
  requireConvolution(problem);
  const isEmpty = elementCounts(problem)[writtenOperand[problem.direction]] === 0;
  return isEmpty ? [] : [{ kind: "convolution", op, problem }];
}
