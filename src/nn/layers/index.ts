/** layers: the building blocks of models. */

export {
  GELU,
  LeakyReLU,
  LogSoftmax,
  ReLU,
  Sigmoid,
  SiLU,
  Softmax,
  Softplus,
  Tanh,
} from "./activations.js";
export { type AttendOptions, MultiheadAttention, type MultiheadAttentionOptions } from "./attention.js";
export {
  BatchNorm1d,
  BatchNorm2d,
  BatchNorm3d,
  type BatchNormOptions,
  InstanceNorm1d,
  InstanceNorm2d,
  InstanceNorm3d,
} from "./batch-norm.js";
export { type Layer, ModuleList, Sequential } from "./containers.js";
export { Conv1d, Conv2d, Conv3d, type ConvolutionLayerOptions } from "./convolution.js";
export { ModuleDict, ParameterDict, ParameterList } from "./dictionaries.js";
export { AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout } from "./dropout.js";
export {
  CELU,
  ELU,
  GLU,
  Hardshrink,
  Hardsigmoid,
  Hardswish,
  Hardtanh,
  LogSigmoid,
  Mish,
  PReLU,
  ReLU6,
  RReLU,
  SELU,
  Softmax2d,
  Softmin,
  Softshrink,
  Softsign,
  Tanhshrink,
  Threshold,
} from "./elementwise-activations.js";
export { Embedding, EmbeddingBag, type EmbeddingOptions } from "./embedding.js";
export { Flatten, Identity, Unflatten } from "./flatten.js";
export { GroupNorm, type GroupNormOptions, LocalResponseNorm } from "./group-norm.js";
export { Bilinear, Linear, LinearAdapter, type LinearOptions } from "./linear.js";
export {
  BCEWithLogitsLoss,
  CrossEntropyLoss,
  HuberLoss,
  L1Loss,
  MSELoss,
  NLLLoss,
  SmoothL1Loss,
} from "./losses.js";
export {
  CosineEmbeddingLoss,
  CosineSimilarity,
  HingeEmbeddingLoss,
  MarginRankingLoss,
  MultiLabelMarginLoss,
  MultiMarginLoss,
  PairwiseDistance,
  TripletMarginLoss,
  TripletMarginWithDistanceLoss,
} from "./margin-losses.js";
export { LayerNorm, type LayerNormOptions, RMSNorm, type RMSNormOptions } from "./normalisation.js";
export {
  CircularPad1d,
  CircularPad2d,
  CircularPad3d,
  ConstantPad1d,
  ConstantPad2d,
  ConstantPad3d,
  type Padding,
  ReflectionPad1d,
  ReflectionPad2d,
  ReflectionPad3d,
  ReplicationPad1d,
  ReplicationPad2d,
  ReplicationPad3d,
  ZeroPad1d,
  ZeroPad2d,
  ZeroPad3d,
} from "./padding.js";
export {
  AvgPool1d,
  AvgPool2d,
  AvgPool3d,
  type AvgPoolOptions,
  MaxPool1d,
  MaxPool2d,
  MaxPool3d,
  MaxUnpool1d,
  MaxUnpool2d,
  MaxUnpool3d,
} from "./pooling.js";
export {
  BCELoss,
  CTCLoss,
  FocalLoss,
  GaussianNLLLoss,
  KLDivLoss,
  MultiLabelSoftMarginLoss,
  PoissonNLLLoss,
  SoftMarginLoss,
} from "./probability-losses.js";
export {
  type CellOptions,
  GRU,
  GRUCell,
  LSTM,
  LSTMCell,
  type RecurrentOptions,
  RNN,
  RNNCell,
  type RNNCellOptions,
  type RNNOptions,
  type SequenceOptions,
} from "./recurrent/index.js";
export {
  AdaptiveAvgPool1d,
  AdaptiveAvgPool2d,
  AdaptiveAvgPool3d,
  AdaptiveMaxPool1d,
  AdaptiveMaxPool2d,
  AdaptiveMaxPool3d,
  ChannelShuffle,
  LPPool1d,
  LPPool2d,
  PixelShuffle,
  PixelUnshuffle,
  Upsample,
} from "./resampling.js";
export { RotaryEmbedding, type RotaryEmbeddingOptions } from "./rotary-embedding.js";
export { convertSyncBatchNorm, SyncBatchNorm } from "./sync-batch-norm.js";
export { TransformerEncoderLayer, type TransformerEncoderLayerOptions } from "./transformer.js";
export { type DecodeOptions, TransformerDecoderLayer } from "./transformer-decoder.js";
export {
  Transformer,
  TransformerDecoder,
  TransformerEncoder,
  type TransformerOptions,
  type TransformerStackOptions,
  type TransformOptions,
} from "./transformer-stacks.js";
export {
  ConvTranspose1d,
  ConvTranspose2d,
  ConvTranspose3d,
  type TransposedConvolutionLayerOptions,
} from "./transposed-convolution.js";
export { Fold, Unfold } from "./windows.js";
