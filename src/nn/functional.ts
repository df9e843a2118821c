/** nn.functional: the computations of layers as functions of tensors, with PyTorch's names and defaults. */

export * from "./functional/activations.js";
export * from "./functional/attention.js";
export * from "./functional/batch-norm.js";
export * from "./functional/ctc-loss.js";
export * from "./functional/dropout.js";
export * from "./functional/elementwise-activations.js";
export * from "./functional/embedding-bag.js";
export * from "./functional/layers.js";
export * from "./functional/losses.js";
export * from "./functional/margin-losses.js";
export * from "./functional/normalisation.js";
export * from "./functional/probability-losses.js";
export * from "./functional/resampling.js";
export { bilinear, fold, type PadMode, unfold } from "./functional/windows.js";
