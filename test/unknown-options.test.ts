/** Unknown options are rejected by name, in all functions, methods and constructors that have options. */

import assert from "node:assert/strict";
import { test } from "node:test";
import * as holdfast from "holdfast";
import { HoldfastError, nn, ones, optim, tensor } from "holdfast";
import { checkOptions } from "../src/errors/index.js";
import { openDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";

const cpu = openDevice({ threads: 1 });
const matrix = ones([2, 2], { device: cpu });

/** The names of each namespace, and the position of the options among the arguments. */
const withOptions: Readonly<Record<string, string>> = {
  "": `
    device:1 AsyncDataLoader:1 BatchSampler:1 DataLoader:1 ImageFolder:1 RandomSampler:1 SubsetRandomSampler:1
    WeightedRandomSampler:2 arange:3 autocast:1 bartlettWindow:1 blackmanWindow:1 bucketize:2 cdist:2
    combinations:2 decodeImage:1 defaultCollate:1 defaultConvert:1 empty:1 emptyLike:1 eye:2 fromTyped:2
    full:2 gradient:1 fullLike:2 hammingWindow:1 hannWindow:1 isin:2 kaiserWindow:1 linspace:3 loadSafetensors:1
    loadWeights:2 logspace:3 meshgrid:1 multinomial:2 normal:3 ones:1 onesLike:1 parseCsv:1 rand:1
    randLike:1 randint:3 randintLike:3 randn:1 randnLike:1 randomSplit:2 randperm:1 readImage:1
    readNpz:1 readParquet:1 readSafetensors:1 searchsorted:2 tensor:1 trilIndices:2 triuIndices:2
    vander:2 vmap:1 writeNpz:1 zeros:1 zerosLike:1`,
  transforms: `
    randomCrop:1`,
  nn: `
    AdaptiveMaxPool1d:1 AdaptiveMaxPool2d:1 AdaptiveMaxPool3d:1 AvgPool1d:1 AvgPool2d:1 AvgPool3d:1 BCELoss:0 BCEWithLogitsLoss:0 BatchNorm2d:1 Bilinear:3 Buffer:2
    CTCLoss:0 Conv1d:3 Conv2d:3 Conv3d:3 ConvTranspose1d:3 ConvTranspose2d:3 ConvTranspose3d:3
    CosineEmbeddingLoss:0 CosineSimilarity:0 CrossEntropyLoss:0 Embedding:2 EmbeddingBag.forward:1
    EmbeddingBag:2 FocalLoss:0 Fold:2 GELU:0 GRU.forward:2 GRU:2 GRUCell:2 GaussianNLLLoss:0 GroupNorm:2
    HingeEmbeddingLoss:0 HuberLoss:0 InstanceNorm1d:1 KLDivLoss:0 L1Loss:0 LPPool1d:2 LPPool2d:2
    LSTM.forward:2 LSTM:2 LSTMCell:2 LayerNorm:1 Linear:2 LocalResponseNorm:1 MSELoss:0
    MarginRankingLoss:0 MaxPool1d:1 MaxPool2d:1 MaxPool3d:1 MaxUnpool1d:1 MaxUnpool2d:1 MaxUnpool3d:1 Module.loadStateDict:1
    Module.registerBuffer:2 MultiLabelMarginLoss:0 MultiLabelSoftMarginLoss:0 MultiMarginLoss:0
    MultiheadAttention.forward:3 MultiheadAttention.forwardWithWeights:3 MultiheadAttention:2 NLLLoss:0
    PReLU:1 PairwiseDistance:0 Parameter:2 PoissonNLLLoss:0 RMSNorm:1 RNN.forward:2 RNN:2 RNNCell:2
    RotaryEmbedding.forward:1 RotaryEmbedding:1 SmoothL1Loss:0 SoftMarginLoss:0 Softplus:0
    Transformer.forward:2 Transformer:1 TransformerDecoder.forward:2 TransformerDecoder:2
    TransformerDecoderLayer.forward:2 TransformerDecoderLayer:2 TransformerEncoder.forward:1
    TransformerEncoder:2 TransformerEncoderLayer.forward:1 TransformerEncoderLayer:2 TripletMarginLoss:0
    TripletMarginWithDistanceLoss:0 Unfold:1 Upsample:0`,
  "nn.functional": `
    adaptiveMaxPool1d:2 adaptiveMaxPool2d:2 adaptiveMaxPool3d:2 affineGrid:2 gridSample:2 avgPool1d:2 avgPool2d:2 avgPool3d:2 batchNorm:5 bceWithLogits:2 binaryCrossEntropy:2 conv1d:3
    conv2d:3 conv3d:3 convTranspose1d:3 convTranspose2d:3 convTranspose3d:3 cosineEmbeddingLoss:3
    crossEntropy:2 ctcLoss:4 embedding:2 embeddingBag:2 fold:3 gaussianNllLoss:3 gumbelSoftmax:1
    hingeEmbeddingLoss:2 huberLoss:2 instanceNorm:5 interpolate:1 klDiv:2 l1Loss:2 linear:3
    localResponseNorm:2 lpPool1d:3 lpPool2d:3 marginRankingLoss:3 maxPool1d:2 maxPool2d:2 maxPool3d:2
    maxUnpool1d:3 maxUnpool2d:3 maxUnpool3d:3
    mseLoss:2 multiMarginLoss:2 multilabelMarginLoss:2 multilabelSoftMarginLoss:2 nllLoss:2
    packedAttention:1 pairwiseDistance:2 pdist:1 poissonNllLoss:2 rrelu:1 rrelu_:1
    scaledDotProductAttention:4 sigmoidFocalLoss:2 smoothL1Loss:2 softMarginLoss:2 softplus:1
    tripletMarginLoss:3 tripletMarginWithDistanceLoss:3 unfold:2`,
  "nn.utils": `
    spectralNorm:1 weightNorm:1`,
  "nn.utils.rnn": `
    padSequence:1 unpadSequence:2`,
  "nn.init": `
    kaimingNormal:0 kaimingUniform:0 orthogonal:0 xavierNormal:0 xavierUniform:0`,
  optim: `
    ASGD:1 Adadelta:1 Adagrad:1 Adam:1 AdamW:1 Adamax:1 ConstantSchedule:1 CosineSchedule:1 GradScaler:0
    LBFGS:1 LambdaSchedule:1 Lion:1 Muon:1 NAdam:1 RAdam:1 RMSprop:1 Rprop:1 SGD:1 SparseAdam:1
    WarmupSchedule:1 clipGradNorm:2`,
  "optim.lrScheduler": `
    ChainedScheduler:1 CosineAnnealingWarmRestarts:1 CyclicLR:1 ExponentialLR:1 LinearLR:1 MultiStepLR:1
    MultiplicativeLR:1 OneCycleLR:1 PolynomialLR:1 ReduceLROnPlateau:1 SequentialLR:1 StepLR:1`,
  "optim.swaUtils": `
    AveragedModel:1 SWALR:1`,
  "autograd.functional": `
    hessian:2 hvp:3 jacobian:2 jvp:3 vhp:3 vjp:3`,
  autograd: `
    backward:2 grad:2 gradcheck:2 gradgradcheck:2`,
  "Tensor.prototype": `
    addbmm:2 addbmm_:2 addcdiv:2 addcmul:2 addmm:2 addmm_:2 addmv:2 addmv_:2 addr:2 addr_:2 all:1
    allclose:1 amax:1 amin:1 aminmax:1 any:1 argmax:1 argmin:1 argsort:1 backward:1 baddbmm:2 baddbmm_:2
    bincount:0 cov:0 cumulativeTrapezoid:0 diff:2 div:1 histogram:1 indexAdd:3 indexPut:2 isclose:1 kthvalue:2 logit:0
    logsumexp:1 max:1 mean:1 median:1 min:1 multinomial:1 mode:1 nanToNum:0 nanmean:1 nanmedian:1 nanquantile:2
    nansum:1 norm:1 prod:1 put:2 quantile:2 round:0 scatter:3 scatterReduce:4 sliceScatter:2 sort:1 std:1
    stdMean:1 sum:1 topk:2 trapezoid:0 var:1 varMean:1`,
  linalg: `
    cholesky:1 choleskyInverse:1 choleskySolve:2 cond:1 lstsq:2 matrixNorm:1 matrixRank:1 norm:1 pinv:1
    qr:1 solve:2 solveTriangular:2 svd:1 tensorinv:1 tensorsolve:2 vander:1 vecdot:2 vectorNorm:1`,
};

type Callable = (this: unknown, ...args: readonly unknown[]) => unknown;
type Space = Readonly<Record<string, unknown>>;

const find = (from: unknown, path: string): unknown =>
  path.split(".").reduce((space, name) => (name === "" ? space : (space as Space)[name]), from);

const isClass = (value: Callable): boolean => Function.prototype.toString.call(value).startsWith("class");

/** Calls a function with an unknown option; returns the error. */
async function callWith(space: string, name: string, position: number): Promise<unknown> {
  const [owner, method] = name.split(".");
  const found = find(find(holdfast, space), owner!) as Callable & { readonly prototype: Space };
  const call = method ? (found.prototype[method] as Callable) : found;
  const args = [...new Array<unknown>(position).fill(matrix), { notAnOption: 1 }];
  try {
    await (isClass(call) ? Reflect.construct(call, args) : call.call(undefined, ...args));
    return undefined;
  } catch (error) {
    return error;
  }
}

for (const [space, names] of Object.entries(withOptions)) {
  test(`${space || "holdfast"}: an unknown option is rejected by its name`, async () => {
    for (const entry of names.trim().split(/\s+/)) {
      const [name, position] = entry.split(":") as [string, string];
      const error = await callWith(space, name, Number(position));
      assert.ok(error instanceof HoldfastError, `${space}.${name}: ${String(error)}`);
      assert.match(error.message, /unknown option notAnOption\. (The options are|The only option is) \w/);
      assert.equal(error.code, "BAD_ARGUMENT");
    }
  });
}

test("the message has the nearest name and all names", () => {
  const x = ones([2, 3], { device: cpu });
  const wrong = (value: object): never => value as never;
  rejects(
    "BAD_ARGUMENT",
    () => x.sum(1, wrong({ keepDim: true })),
    /^sum: unknown option keepDim\. Did you mean keepdim\?/,
  );
  rejects(
    "BAD_ARGUMENT",
    () => x.std(1, wrong({ keepdims: true })),
    /Did you mean keepdim\? The options are correction, keepdim\./,
  );
  rejects(
    "BAD_ARGUMENT",
    () => new nn.Linear(2, 3, wrong({ Bias: false })),
    /^nn\.Linear: .*Did you mean bias\?/,
  );
  rejects(
    "BAD_ARGUMENT",
    () => new optim.AdamW([], wrong({ weight_decay: 0.1 })),
    /optim\.AdamW: unknown option weight_decay\. Did you mean weightDecay\?/,
  );
  rejects("BAD_ARGUMENT", () => new nn.CosineSimilarity(wrong({ dim: 1 })), /Did you mean axis\?/);
  rejects(
    "BAD_ARGUMENT",
    () => tensor([1], wrong({ label: "x" })),
    /unknown option label\. The options are dtype/,
  );
});

test("options in another place, or of another type, are rejected", () => {
  const x = ones([2, 3], { device: cpu });
  const wrong = (value: unknown): never => value as never;
  rejects("BAD_ARGUMENT", () => x.sum(wrong({ dims: 1 })), /sum got an object with dims as its axes/);
  rejects("BAD_ARGUMENT", () => x.softmax(wrong({ keepDim: true })), /an object with keepDim/);
  rejects(
    "BAD_ARGUMENT",
    () => x.sum(1, wrong(true)),
    /the options are true; pass an object, such as { keepdim/,
  );
  rejects("BAD_ARGUMENT", () => new nn.Linear(2, 3, wrong(false)), /nn\.Linear: the options are false/);
});

test("red proof: options whose names are known pass", () => {
  const options = { keepdim: true };
  assert.equal(checkOptions("sum", options, { keepdim: true }), options);
  assert.throws(() => checkOptions("sum", options, { keepDim: true } as never));
});
