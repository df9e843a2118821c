/** autograd: the tape, the saved tensors of each op, and the backward pass. */

export type { Root } from "./backward.js";
export {
  enableGrad,
  inferenceMode,
  isGradEnabled,
  isRecording,
  noGrad,
  setGradEnabled,
} from "./grad-mode.js";
export { GradientHooks, hooksOf, retainGradient, retainsGradient } from "./gradient-hooks.js";
export { type GuardedField, Guards, onTrace, stateChanged, tracing } from "./guards.js";
export type { Leaf, Node, RecordedOperand } from "./node.js";
export { beforeChange, currentRecomputation, Recomputation } from "./recomputation.js";
export { asValue } from "./recorded-backward.js";
export { type Accumulator, Tape, type TapeOptions } from "./tape.js";
export { type Cut, Value } from "./value.js";
export { noteWrite, versionOf } from "./versions.js";
