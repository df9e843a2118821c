/** autograd: the tape, the saved tensors of each op, and the backward pass. */

export type { BackwardOptions } from "./backward.js";
export { isRecording, noGrad } from "./grad-mode.js";
export { type GuardedField, Guards, onTrace, stateChanged, tracing } from "./guards.js";
export type { Leaf } from "./node.js";
export { beforeChange, currentRecomputation, Recomputation } from "./recomputation.js";
export { Tape, type TapeOptions } from "./tape.js";
export { type Cut, Value } from "./value.js";
export { noteWrite, versionOf } from "./versions.js";
