/** nn.functional: the computations of layers as functions of tensors, with PyTorch's names and defaults. */

export {
  gelu,
  leakyRelu,
  logSoftmax,
  relu,
  type SoftplusOptions,
  sigmoid,
  silu,
  softmax,
  softplus,
  tanh,
} from "./functional/activations.js";
export * from "./functional/adaptive-pooling.js";
export * from "./functional/attention.js";
export {
  type BatchNormFunctionOptions,
  batchNorm,
  groupNorm,
  type InstanceNormFunctionOptions,
  instanceNorm,
  type LocalResponseNormOptions,
  localResponseNorm,
} from "./functional/batch-norm.js";
export { type CTCLossOptions, ctcLoss } from "./functional/ctc-loss.js";
export * from "./functional/dropout.js";
export * from "./functional/elementwise-activations.js";
export * from "./functional/embedding-bag.js";
export { affineGrid, type GridSampleOptions, gridSample } from "./functional/grid-sample.js";
export * from "./functional/layers.js";
export {
  type BinaryLossOptions,
  bceWithLogits,
  binaryCrossEntropyWithLogits,
  type ClassLossOptions,
  type CrossEntropyOptions,
  crossEntropy,
  huberLoss,
  type LossOptions,
  l1Loss,
  mseLoss,
  nllLoss,
  smoothL1Loss,
} from "./functional/losses.js";
export {
  cosineEmbeddingLoss,
  cosineSimilarity,
  hingeEmbeddingLoss,
  type MarginOptions,
  type MultiMarginOptions,
  marginRankingLoss,
  multilabelMarginLoss,
  multiMarginLoss,
  type PairwiseDistanceOptions,
  pairwiseDistance,
  type TripletDistanceOptions,
  type TripletMarginOptions,
  tripletMarginLoss,
  tripletMarginWithDistanceLoss,
} from "./functional/margin-losses.js";
export * from "./functional/normalisation.js";
export {
  binaryCrossEntropy,
  type FocalLossOptions,
  type GaussianNLLLossOptions,
  gaussianNllLoss,
  type KLDivOptions,
  klDiv,
  multilabelSoftMarginLoss,
  type PoissonNLLLossOptions,
  type ProbabilityLossOptions,
  poissonNllLoss,
  sigmoidFocalLoss,
  softMarginLoss,
} from "./functional/probability-losses.js";
export {
  channelShuffle,
  type InterpolateOptions,
  type InterpolationMode,
  interpolate,
  type LpPoolOptions,
  lpPool1d,
  lpPool2d,
  pixelShuffle,
  pixelUnshuffle,
} from "./functional/resampling.js";
export { type MaxUnpoolOptions, maxUnpool1d, maxUnpool2d, maxUnpool3d } from "./functional/unpooling.js";
export { bilinear, fold, type PadMode, unfold } from "./functional/windows.js";
