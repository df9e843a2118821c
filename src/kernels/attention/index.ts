/** attention: scaled dot product attention, forward and backward, each as one kernel. */

export { attend, attendBackward } from "./attention.js";
export type {
  AttentionBackwardProblem,
  AttentionInput,
  AttentionMask,
  AttentionOperand,
  AttentionProblem,
  AttentionShape,
} from "./problem.js";
