/** ops: the op table. An entry has an op's shape and dtype rule, its gradient, its saved values and its lowering. */

export { type AttentionAttributes, attention } from "./attention/attention.js";
export { type CachedAttentionAttributes, cachedAttention } from "./attention/cached.js";
export { causalMask } from "./attention/causal-mask.js";
export { packedAttention } from "./attention/packed.js";
export { scaledDotProductAttention } from "./attention/scaled-dot-product.js";
export { attentionWithDropout } from "./attention/with-dropout.js";
export { expand, sum } from "./broadcast.js";
export { allGather, allToAll, broadcast, reduceScatter } from "./collectives/collectives.js";
export { type AveragePoolAttributes, avgPool1d, avgPool2d, avgPool3d } from "./convolution/average-pool.js";
export { type ConvolutionAttributes, conv1d, conv2d, conv3d } from "./convolution/convolution.js";
export type { PerAxis, WindowOptions, Windows } from "./convolution/geometry.js";
export { padsOf, windowOptionNames } from "./convolution/geometry.js";
export { maxPool1d, maxPool2d, maxPool3d, type PoolAttributes, poolWindows } from "./convolution/max-pool.js";
export {
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
  type TransposedConvolutionAttributes,
} from "./convolution/transposed-convolution.js";
export { type FoldAttributes, fold, type WindowAttributes, windows } from "./convolution/windows.js";
export { type ArrayCopy, copyArrays, copyCalls } from "./copy.js";
export {
  allocateArray,
  broadcastStrides,
  contiguousStrides,
  type DeviceArray,
  isContiguous,
  type Layout,
  viewArray,
} from "./device-array.js";
export * as activations from "./elementwise/activations.js";
export { add, div, isFloat, maximum, minimum, mul, pow, sub } from "./elementwise/arithmetic.js";
export * as bitwise from "./elementwise/bitwise.js";
export { cast, contiguous, requireDtype } from "./elementwise/cast.js";
export * as comparisons from "./elementwise/comparisons.js";
export * as divisors from "./elementwise/divisors.js";
export * as functions from "./elementwise/functions.js";
export * as gatedActivations from "./elementwise/gated-activations.js";
export type { HardtanhAttributes } from "./elementwise/hard-activations.js";
export * as hardActivations from "./elementwise/hard-activations.js";
export * as rounding from "./elementwise/rounding.js";
export * as selections from "./elementwise/selections.js";
export type { EluAttributes } from "./elementwise/smooth-activations.js";
export * as smoothActivations from "./elementwise/smooth-activations.js";
export * as special from "./elementwise/special.js";
export * as trigonometric from "./elementwise/trigonometric.js";
export { gather, scatterAdd } from "./indexing/gather.js";
export { indexedCopyCalls } from "./indexing/indexed-copy.js";
export { maskedFill } from "./indexing/masked-fill.js";
export { oneHot } from "./indexing/one-hot.js";
export { renormRows } from "./indexing/renorm-rows.js";
export { type EmbeddingAttributes, embedding, indexSelect } from "./indexing/select.js";
export * as linearAlgebra from "./linear-algebra/index.js";
export { defaultIgnoreIndex, type LossReduction } from "./losses/class-rows.js";
export { type CrossEntropyAttributes, crossEntropy } from "./losses/cross-entropy.js";
export { nllLoss } from "./losses/nll-loss.js";
export * as losses from "./losses/paired.js";
export { crossEntropyOfProbabilities } from "./losses/soft-cross-entropy.js";
export * as targetLosses from "./losses/two-operands.js";
export { batchedLinear } from "./matmul/batched-linear.js";
export { fusedProjections } from "./matmul/fused-projections.js";
export { biasOfLora, type LoraLinearAttributes, loraLinear } from "./matmul/lora-linear.js";
export { type LinearAttributes, linear, matmul } from "./matmul/matmul.js";
export { cat, stack } from "./movement/cat.js";
export { diagonal } from "./movement/diagonal.js";
export { flip } from "./movement/flip.js";
export { type PadAttributes, pad } from "./movement/pad.js";
export { repeatInterleave, tile } from "./movement/repeat.js";
export { permute, reshape } from "./movement/reshape.js";
export { type Range, type SliceAttributes, select, slice } from "./movement/slice.js";
export type { StridedView } from "./movement/strided-view.js";
export { tril, triu } from "./movement/triangle.js";
export { type UpsampleAttributes, upsampleNearest } from "./movement/upsample.js";
export { addToView, writeView, zeroViews } from "./movement/view-gradient.js";
export {
  type BatchNormAttributes,
  batchNorm,
  normalizeChannels,
  runningAverage,
} from "./normalisation/batch-norm.js";
export { type GroupNormAttributes, groupNorm } from "./normalisation/group-norm.js";
export type { LastAxesAttributes } from "./normalisation/last-axes.js";
export { layerNorm } from "./normalisation/layer-norm.js";
export { type NormalizeAttributes, normalize } from "./normalisation/normalize.js";
export { rmsNorm } from "./normalisation/rms-norm.js";
export { type AxisAttributes, logSoftmax, softmax } from "./normalisation/softmax.js";
export type {
  Apply,
  ApplyAll,
  Attributes,
  CompositeOp,
  Composition,
  GradientRule,
  Gradients,
  KernelOp,
  Lowering,
  NoAttributes,
  Op,
  OperandType,
  ValueType,
  ViewOp,
} from "./op.js";
export {
  copyInto,
  inComposite,
  inRankPart,
  inRecomputation,
  inStepPhase,
  type LoweredOp,
  noteRanks,
  type OpCall,
  OpTrace,
} from "./op-trace.js";
export { drawArray, drawOnHost, isDrawable, type Random } from "./random/draw.js";
export { type DropoutAttributes, dropout } from "./random/dropout.js";
export { type RandomAttributes, random } from "./random/random.js";
export type { Cell } from "./recurrent/cells.js";
export { positionsOf, type RecurrentAttributes } from "./recurrent/operands.js";
export { recurrent } from "./recurrent/recurrent.js";
export { type ArgExtremeAttributes as PlaceAttributes, argmax, argmin } from "./reduction/arg-extremes.js";
export { type CumsumAttributes, cumsum } from "./reduction/cumsum.js";
export { amax, amin } from "./reduction/extremes.js";
export { logsumexp } from "./reduction/logsumexp.js";
export { mean } from "./reduction/mean.js";
export { type NormAttributes, norm } from "./reduction/norm.js";
export { prod } from "./reduction/prod.js";
export type { ReductionAttributes } from "./reduction/rule.js";
export { all, any } from "./reduction/truth.js";
export { std, type VarianceAttributes, variance } from "./reduction/variance.js";
export { applyTo, firstOf, requireFits, runInto, runOp, typeOfOperand } from "./run.js";
export {
  axesOf,
  axisOf,
  broadcastShapes,
  formatShape,
  isSameShape,
  requireShape,
  type Shape,
  sizeOf,
} from "./shape.js";
export { type SortAttributes, sort } from "./sorting/sort.js";
export { opTable } from "./table.js";
