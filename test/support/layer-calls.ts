/** The call of each function in test/oracle/layers.json: its operands, and the attributes of a case. */

import { nn, type Tensor } from "holdfast";

type Operands = readonly [Tensor, ...(Tensor | undefined)[]];
type LayerCall = (operands: Operands, attributes: Readonly<Record<string, unknown>>) => Tensor;

const f = nn.functional;

/** A call whose attributes have the type that layers.py writes. A null operand is undefined. */
function call<A>(run: (operands: Operands, attributes: A) => Tensor): LayerCall {
  return run as unknown as LayerCall;
}

const unary = [
  "selu",
  "mish",
  "logsigmoid",
  "softsign",
  "tanhshrink",
  "relu6",
  "hardswish",
  "hardsigmoid",
] as const;

const convolutions = [
  "conv1d",
  "conv2d",
  "conv3d",
  "convTranspose1d",
  "convTranspose2d",
  "convTranspose3d",
] as const;
const maxPools = ["maxPool1d", "maxPool2d", "maxPool3d"] as const;
const adaptivePools = [
  ...(["adaptiveAvgPool1d", "adaptiveAvgPool2d", "adaptiveAvgPool3d"] as const),
  ...(["adaptiveMaxPool1d", "adaptiveMaxPool2d", "adaptiveMaxPool3d"] as const),
];

/** Functions of two or three tensors and options. */
const pairs = [
  ...([
    "klDiv",
    "poissonNllLoss",
    "softMarginLoss",
    "multilabelSoftMarginLoss",
    "hingeEmbeddingLoss",
  ] as const),
  ...(["pairwiseDistance", "multilabelMarginLoss"] as const),
];
const triples = [
  ...(["gaussianNllLoss", "marginRankingLoss", "cosineEmbeddingLoss", "tripletMarginLoss"] as const),
  "tripletMarginWithDistanceLoss" as const,
];

export const layerCalls: Readonly<Record<string, LayerCall>> = {
  batchNorm: call<nn.functional.BatchNormFunctionOptions>(([x, mean, variance, weight, bias], options) =>
    f.batchNorm(x, mean ?? null, variance ?? null, weight, bias, options),
  ),
  groupNorm: call<{ groups: number; eps?: number }>(([x, weight, bias], { groups, eps }) =>
    f.groupNorm(x, groups, weight, bias, eps),
  ),
  instanceNorm: call<nn.functional.InstanceNormFunctionOptions>(
    ([x, mean, variance, weight, bias], options) => f.instanceNorm(x, mean, variance, weight, bias, options),
  ),
  localResponseNorm: call<{ size: number } & nn.functional.LocalResponseNormOptions>(
    ([x], { size, ...options }) => f.localResponseNorm(x, size, options),
  ),
  ...Object.fromEntries(unary.map((name) => [name, call(([x]) => f[name](x))])),
  elu: call<{ alpha: number }>(([x], { alpha }) => f.elu(x, alpha)),
  celu: call<{ alpha: number }>(([x], { alpha }) => f.celu(x, alpha)),
  hardtanh: call<{ min: number; max: number }>(([x], { min, max }) => f.hardtanh(x, min, max)),
  hardshrink: call<{ lambda: number }>(([x], { lambda }) => f.hardshrink(x, lambda)),
  softshrink: call<{ lambda: number }>(([x], { lambda }) => f.softshrink(x, lambda)),
  threshold: call<{ threshold: number; value: number }>(([x], { threshold, value }) =>
    f.threshold(x, threshold, value),
  ),
  softplus: call<nn.functional.SoftplusOptions>(([x], options) => f.softplus(x, options)),
  rrelu: call<nn.functional.RReluOptions>(([x], options) => f.rrelu(x, options)),
  softmin: call<{ axis: number }>(([x], { axis }) => f.softmin(x, axis)),
  glu: call<{ axis: number }>(([x], { axis }) => f.glu(x, axis)),
  prelu: call(([x, weight]) => f.prelu(x, weight!)),
  ...Object.fromEntries(
    pairs.map((name) => [name, call<never>(([x, y], options) => f[name](x, y!, options))]),
  ),
  ...Object.fromEntries(
    triples.map((name) => [name, call<never>(([x, y, z], options) => f[name](x, y!, z!, options))]),
  ),
  binaryCrossEntropy: call(([x, target, weight = null]) => f.binaryCrossEntropy(x, target!, { weight })),
  multiMarginLoss: call<nn.functional.MultiMarginOptions>(([x, target, weight = null], options) =>
    f.multiMarginLoss(x, target!, { ...options, weight }),
  ),
  cosineSimilarity: call<{ axis: number }>(([x, y], { axis }) => f.cosineSimilarity(x, y!, axis)),
  pdist: call(([x]) => f.pdist(x)),
  ctcLoss: call<nn.functional.CTCLossOptions>(([x, targets, inputs, lengths], options) =>
    f.ctcLoss(x.logSoftmax(-1), targets!, inputs!, lengths!, options),
  ),
  ...Object.fromEntries(
    convolutions.map((name) => [
      name,
      call<Readonly<Record<string, number>>>(([x, weight, bias = null], options) =>
        f[name](x, weight!, bias, options),
      ),
    ]),
  ),
  ...Object.fromEntries(
    adaptivePools.map((name) => [name, call<{ size: number }>(([x], { size }) => f[name](x, size))]),
  ),
  ...Object.fromEntries(
    [...maxPools, ...(["avgPool1d", "avgPool2d", "avgPool3d"] as const)].map((name) => [
      name,
      call<{ kernel: number }>(([x], { kernel, ...options }) => f[name](x, kernel, options)),
    ]),
  ),
  ...Object.fromEntries(
    maxPools.map((name) => [
      `${name}Indices`,
      call<{ kernel: number }>(
        ([x], { kernel, ...options }) => f[name](x, kernel, { ...options, returnIndices: true }).indices,
      ),
    ]),
  ),
  ...Object.fromEntries(
    (["adaptiveMaxPool1d", "adaptiveMaxPool2d", "adaptiveMaxPool3d"] as const).map((name) => [
      `${name}Indices`,
      call<{ size: number }>(([x], { size }) => f[name](x, size, { returnIndices: true }).indices),
    ]),
  ),
  ...Object.fromEntries(
    (["maxUnpool1d", "maxUnpool2d", "maxUnpool3d"] as const).map((name) => [
      name,
      call<{ kernel: number }>(([x, indices], { kernel, ...options }) =>
        f[name](x, indices!, kernel, options),
      ),
    ]),
  ),
  ...Object.fromEntries(
    (["lpPool1d", "lpPool2d"] as const).map((name) => [
      name,
      call<{ p: number; kernel: number }>(([x], { p, kernel, ...options }) => f[name](x, p, kernel, options)),
    ]),
  ),
  interpolate: call<nn.functional.InterpolateOptions>(([x], options) => f.interpolate(x, options)),
  gridSample: call<nn.functional.GridSampleOptions>(([x, grid], options) => f.gridSample(x, grid!, options)),
  affineGrid: call<{ size: number[]; alignCorners: boolean }>(([theta], { size, alignCorners }) =>
    f.affineGrid(theta, size, { alignCorners }),
  ),
  pixelShuffle: call<{ factor: number }>(([x], { factor }) => f.pixelShuffle(x, factor)),
  pixelUnshuffle: call<{ factor: number }>(([x], { factor }) => f.pixelUnshuffle(x, factor)),
  channelShuffle: call<{ groups: number }>(([x], { groups }) => f.channelShuffle(x, groups)),
  unfold: call<{ kernel: number }>(([x], { kernel, ...options }) => f.unfold(x, kernel, options)),
  fold: call<{ size: number; kernel: number }>(([x], { size, kernel, ...options }) =>
    f.fold(x, size, kernel, options),
  ),
  pad: call<{ pads: number[] } & nn.functional.PadOptions>(([x], { pads, ...options }) =>
    f.pad(x, pads, options),
  ),
  bilinear: call(([x, y, weight, bias = null]) => f.bilinear(x, y!, weight!, bias)),
  embedding: call<{ normType?: number | "Infinity" }>(([index, weight], { normType, ...options }) =>
    f.embedding(index, weight!, {
      ...options,
      ...(normType !== undefined && { normType: Number(normType) }),
    }),
  ),
  embeddingBag: call<nn.functional.EmbeddingBagOptions>(
    ([x, weight, offsets = null, perSampleWeights = null], options) =>
      f.embeddingBag(x, weight!, { ...options, offsets, perSampleWeights }),
  ),
};

function linearOrImageLayer(isImage: unknown): nn.Linear | nn.ConvTranspose2d {
  return isImage === true ? new nn.ConvTranspose2d(3, 2, 2) : new nn.Linear(4, 3);
}

interface ModuleCall {
  readonly module: nn.Module;
  /** The inputs to the results. */
  readonly call: (inputs: readonly Tensor[]) => readonly Tensor[];
}

/** Modules with the sizes of layers.py, and the masks that it passes. */
export const moduleCalls: Readonly<
  Record<string, (attributes: Readonly<Record<string, unknown>>) => ModuleCall>
> = {
  weightNorm: ({ axis, isImage }) => {
    const module = nn.utils.weightNorm(linearOrImageLayer(isImage), { axis: axis as number | null });
    return { module, call: ([x]) => [module.forward(x!)] };
  },
  spectralNorm: ({ isImage, nPowerIterations = 1 }) => {
    const layer = linearOrImageLayer(isImage);
    const module = nn.utils.spectralNorm(layer, { nPowerIterations: nPowerIterations as number });
    return {
      module,
      call: ([x]) => {
        const buffers = module.buffers();
        for (const buffer of buffers) {
          const counts = Float64Array.from({ length: buffer.numel }, (_, index) => index + 1);
          buffer.initialize(() => counts.map((count) => count / Math.hypot(...counts)));
        }
        module.train();
        const [first, , third] = [1, 2, 3].map(() => module.forward(x!));
        return [third!.add(first!).add(module.eval().forward(x!)), ...buffers];
      },
    };
  },
  MultiheadAttention: () => {
    const module = new nn.MultiheadAttention(4, 2);
    return {
      module,
      call: ([x, memory, keyPaddingMask]) => {
        const options = { keyPaddingMask: keyPaddingMask! };
        const { weights } = module.forwardWithWeights(x!, memory!, memory!, options);
        return [module.forward(x!, memory!, memory!, options), weights];
      },
    };
  },
  TransformerDecoderLayer: ({ normFirst }) => {
    const options = { dimFeedforward: 3, activation: "gelu", normFirst: normFirst === true } as const;
    const module = new nn.TransformerDecoderLayer(4, 2, options);
    return {
      module,
      call: ([x, memory, padding]) => [
        module.forward(x!, memory!, { tgtIsCausal: true, memoryKeyPaddingMask: padding! }),
      ],
    };
  },
  Transformer: () => {
    const sizes = { heads: 2, numEncoderLayers: 1, numDecoderLayers: 1, dimFeedforward: 3 };
    const module = new nn.Transformer(4, { ...sizes, activation: "gelu" });
    return {
      module,
      call: ([src, tgt, padding]) => [
        module.forward(src!, tgt!, {
          ...{ tgtIsCausal: true, srcKeyPaddingMask: padding!, memoryKeyPaddingMask: padding! },
        }),
      ],
    };
  },
};
