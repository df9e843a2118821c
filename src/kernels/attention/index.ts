/** attention: scaled dot product attention, forward and backward. */

export { attentionBackwardCalls, attentionCalls } from "./attention.js";
export type { CachedAttentionProblem, CachedDtype, CachedShape, NewHeads } from "./cached-problem.js";
export { keptBitsShape, storesKeptBits } from "./kept-bits.js";
export type {
  AttentionBackwardProblem,
  AttentionInput,
  AttentionMask,
  AttentionOperand,
  AttentionProblem,
  AttentionShape,
  BackwardProblem,
  ForwardProblem,
} from "./problem.js";
