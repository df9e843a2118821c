/** The translation of every op that a forward pass may contain. `docs/onnx.md` and its test are made from this table. */

import { linearAlgebra } from "../../ops/index.js";
import { activationTranslations } from "./activations.js";
import { attentionTranslations } from "./attention.js";
import type { Translation } from "./call-context.js";
import { convolutionTranslations } from "./convolution.js";
import { translateElementwise } from "./expression.js";
import { indexingTranslations } from "./indexing.js";
import { lossTranslations } from "./losses.js";
import { matmulTranslations } from "./matmul.js";
import { movementTranslations } from "./movement.js";
import { normalisationTranslations } from "./normalisation.js";
import { recurrent } from "./recurrent.js";
import { reductionTranslations } from "./reductions.js";
import { regionTranslations } from "./regions.js";

/** Elementwise ops, whose kernels are translated. */
export const elementwiseNames = [
  ...["add", "sub", "mul", "div", "pow", "maximum", "minimum", "remainder", "fmod", "floorDivide"],
  ...["eq", "ne", "lt", "le", "gt", "ge", "logicalAnd", "logicalOr", "logicalXor", "logicalNot"],
  ...[
    "isnan",
    "isfinite",
    "where",
    "clamp",
    "fill",
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
  ],
  ...[
    "exp",
    "expm1",
    "exp2",
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "rsqrt",
    "square",
    "erf",
    "erfc",
    "erfinv",
  ],
  ...["lgamma", "digamma", "i0", "logit", "xlogy", "logaddexp", "logaddexp2", "sinc", "deg2rad", "rad2deg"],
  ...[
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
  ],
  ...["hypot", "copysign", "signbit", "heaviside", "fmax", "fmin", "lerp", "addcmul", "addcdiv", "nanToNum"],
  ...["bitwiseAnd", "bitwiseOr", "bitwiseXor", "bitwiseNot", "bitwiseLeftShift", "bitwiseRightShift"],
  ...[
    "sigmoid",
    "silu",
    "logSigmoid",
    "tanhshrink",
    "scaledSoftplus",
    "hardtanh",
    "hardsigmoid",
    "hardshrink",
  ],
  ...["softshrink", "threshold", "prelu", "sigmoidGate", "runningAverage"],
  ...["squaredError", "absoluteError", "huberError", "binaryCrossEntropy", "hingeEmbedding", "klDivergence"],
  ...["klDivergenceOfLogs", "poissonOfLog", "poissonOfRate", "probabilityCrossEntropy", "softMargin"],
] as const;

/** Ops of one kind. */
export interface Family {
  readonly translations: Readonly<Record<string, Translation>>;
  /** The ONNX operators that they become, without elementwise ones and those of `connecting`. */
  readonly nodes: readonly string[];
}

/** Operators that change types, shapes and layouts. */
export const connecting = [
  ...[
    "Cast",
    "Identity",
    "Shape",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Expand",
    "Slice",
    "Concat",
  ],
] as const;

/** The families of ops, as `docs/onnx.md` lists them. */
export const families: Readonly<Record<string, Family>> = {
  elementwise: {
    nodes: [
      ...["Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitwiseAnd", "Ceil"],
      ...["Cos", "Cosh", "Div", "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual", "IsNaN", "Less"],
      ...["LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Round"],
      ...["Sigmoid", "Sin", "Sinh", "Softplus", "Sqrt", "Sub", "Tan", "Tanh", "Where", "Xor"],
    ],
    translations: Object.fromEntries(elementwiseNames.map((name) => [name, translateElementwise])),
  },
  activations: {
    nodes: ["Elu", "Gelu", "HardSwish", "LeakyRelu", "Mish", "Reciprocal", "Relu", "Softsign"],
    translations: activationTranslations,
  },
  "views, joins and copies": {
    nodes: ["Gather", "Pad", "Trilu"],
    translations: movementTranslations,
  },
  "sums, extrema, scans and sorting": {
    nodes: [
      "ArgMax",
      "ArgMin",
      "CumSum",
      "GatherElements",
      "ReduceL1",
      "ReduceL2",
      "ReduceLogSumExp",
      "ReduceMax",
      "ReduceMean",
      "ReduceMin",
      "ReduceProd",
      "ReduceSum",
      "TopK",
    ],
    translations: reductionTranslations,
  },
  "matrix products": {
    nodes: ["Det", "Gemm", "MatMul"],
    translations: matmulTranslations,
  },
  "softmax and norms": {
    nodes: ["InstanceNormalization", "LayerNormalization", "LogSoftmax", "ReduceL2", "ReduceMean", "Softmax"],
    translations: normalisationTranslations,
  },
  "convolutions and pools": {
    nodes: ["AveragePool", "Conv", "ConvTranspose", "Gather", "MatMul", "MaxPool"],
    translations: convolutionTranslations,
  },
  attention: {
    nodes: ["Gather", "MatMul", "Softmax", "Trilu"],
    translations: attentionTranslations,
  },
  "embeddings and indices": {
    nodes: ["Gather", "GatherElements", "ScatterElements"],
    translations: indexingTranslations,
  },
  losses: {
    nodes: ["LogSoftmax", "ReduceSum"],
    translations: lossTranslations,
  },
  "recurrent layers": {
    nodes: ["GRU", "LSTM", "RNN", "ReduceSum"],
    translations: { recurrent },
  },
};

export const translations: ReadonlyMap<string, Translation> = new Map([
  ...Object.values(families).flatMap(({ translations: ops }) => Object.entries(ops)),
  ...Object.entries(regionTranslations),
]);

const isRandom = "it draws random numbers, which an ONNX file can't repeat. Pass them as an input";
const isDense = "ONNX has no such decomposition of matrices";

/** Why the other kernel ops are rejected. Composite ops without a translation are exported as the ops that they consist of. */
export const rejections: ReadonlyMap<string, string> = new Map([
  ["dropout", isRandom],
  ["random", isRandom],
  ["attentionWithDropout", isRandom],
  [
    "renormRows",
    "it changes the weight of an embedding. Create the embedding of the exported model without maxNorm",
  ],
  ...Object.values(linearAlgebra).flatMap(({ name }) =>
    translations.has(name) ? [] : [[name, isDense] as const],
  ),
]);
