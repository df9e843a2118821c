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

/** The translations by family, as `docs/onnx.md` lists them. */
export const families: Readonly<Record<string, Readonly<Record<string, Translation>>>> = {
  elementwise: Object.fromEntries(elementwiseNames.map((name) => [name, translateElementwise])),
  activations: activationTranslations,
  "views, joins and copies": movementTranslations,
  "sums, extrema, scans and sorting": reductionTranslations,
  "matrix products": matmulTranslations,
  "softmax and norms": normalisationTranslations,
  "convolutions and pools": convolutionTranslations,
  attention: attentionTranslations,
  "embeddings and indices": indexingTranslations,
  losses: lossTranslations,
  "recurrent layers": { recurrent },
};

export const translations: ReadonlyMap<string, Translation> = new Map(
  Object.values(families).flatMap((family) => Object.entries(family)),
);

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
