/** The op table: every entry by its name. Tests iterate over it, so every op of the engine must be here. */

import { attention } from "./attention/attention.js";
import { causalMask } from "./attention/causal-mask.js";
import { packedAttention } from "./attention/packed.js";
import { scaledDotProductAttention } from "./attention/scaled-dot-product.js";
import { attentionWithDropout } from "./attention/with-dropout.js";
import { expand, sum } from "./broadcast.js";
import { avgPool1d, avgPool2d, avgPool3d } from "./convolution/average-pool.js";
import { conv1d, conv2d, conv3d } from "./convolution/convolution.js";
import { maxPool1d, maxPool2d, maxPool3d } from "./convolution/max-pool.js";
import { convTranspose1d, convTranspose2d, convTranspose3d } from "./convolution/transposed-convolution.js";
import { fold, windows } from "./convolution/windows.js";
import * as activations from "./elementwise/activations.js";
import { add, div, maximum, minimum, mul, pow, sub } from "./elementwise/arithmetic.js";
import * as bitwise from "./elementwise/bitwise.js";
import { cast, contiguous } from "./elementwise/cast.js";
import * as comparisons from "./elementwise/comparisons.js";
import * as divisors from "./elementwise/divisors.js";
import * as functions from "./elementwise/functions.js";
import * as gatedActivations from "./elementwise/gated-activations.js";
import * as hardActivations from "./elementwise/hard-activations.js";
import * as rounding from "./elementwise/rounding.js";
import * as selections from "./elementwise/selections.js";
import * as smoothActivations from "./elementwise/smooth-activations.js";
import * as special from "./elementwise/special.js";
import * as trigonometric from "./elementwise/trigonometric.js";
import { gather, scatterAdd } from "./indexing/gather.js";
import { maskedFill } from "./indexing/masked-fill.js";
import { oneHot } from "./indexing/one-hot.js";
import { renormRows } from "./indexing/renorm-rows.js";
import { embedding, indexSelect } from "./indexing/select.js";
import * as linearAlgebra from "./linear-algebra/index.js";
import { crossEntropy } from "./losses/cross-entropy.js";
import { nllLoss } from "./losses/nll-loss.js";
import * as paired from "./losses/paired.js";
import { crossEntropyOfProbabilities } from "./losses/soft-cross-entropy.js";
import * as targetLosses from "./losses/two-operands.js";
import { batchedLinear } from "./matmul/batched-linear.js";
import { fusedProjections } from "./matmul/fused-projections.js";
import { loraLinear } from "./matmul/lora-linear.js";
import { linear, matmul } from "./matmul/matmul.js";
import { cat, stack } from "./movement/cat.js";
import { diagonal } from "./movement/diagonal.js";
import { flip } from "./movement/flip.js";
import { pad } from "./movement/pad.js";
import { repeatInterleave, tile } from "./movement/repeat.js";
import { permute, reshape } from "./movement/reshape.js";
import { select, slice } from "./movement/slice.js";
import { tril, triu } from "./movement/triangle.js";
import { upsampleNearest } from "./movement/upsample.js";
import { batchNorm, normalizeChannels, runningAverage } from "./normalisation/batch-norm.js";
import { groupNorm } from "./normalisation/group-norm.js";
import { layerNorm } from "./normalisation/layer-norm.js";
import { normalize } from "./normalisation/normalize.js";
import { rmsNorm } from "./normalisation/rms-norm.js";
import { logSoftmax, softmax } from "./normalisation/softmax.js";
import type { Op } from "./op.js";
import { dropout } from "./random/dropout.js";
import { random } from "./random/random.js";
import { recurrent } from "./recurrent/recurrent.js";
import { argmax, argmin } from "./reduction/arg-extremes.js";
import { cumsum } from "./reduction/cumsum.js";
import { amax, amin } from "./reduction/extremes.js";
import { logsumexp } from "./reduction/logsumexp.js";
import { mean } from "./reduction/mean.js";
import { norm } from "./reduction/norm.js";
import { prod } from "./reduction/prod.js";
import { all, any } from "./reduction/truth.js";
import { std, variance } from "./reduction/variance.js";

import { sort } from "./sorting/sort.js";

export const opTable: Readonly<Record<string, Op>> = {
  ...{ add, sub, mul, div, pow, maximum, minimum, cast, contiguous },
  ...comparisons,
  ...functions,
  ...{ ...rounding, ...divisors, ...trigonometric, ...special, ...selections, ...bitwise },
  ...activations,
  ...{ ...smoothActivations, ...hardActivations, ...gatedActivations },
  ...{ sum, mean, amax, amin, prod, variance, std, norm, logsumexp, cumsum },
  ...{ argmax, argmin, all, any, sort },
  ...{ softmax, logSoftmax, layerNorm, rmsNorm, normalize },
  ...{ batchNorm, normalizeChannels, runningAverage, groupNorm },
  ...{ matmul, linear, loraLinear, batchedLinear, fusedProjections },
  ...linearAlgebra,
  ...{ crossEntropy, crossEntropyOfProbabilities, nllLoss },
  ...paired,
  ...targetLosses,
  ...{ attention, packedAttention, scaledDotProductAttention, attentionWithDropout, causalMask },
  ...{ dropout, random, recurrent },
  ...{ reshape, permute, expand },
  ...{ slice, select, cat, stack, flip, pad, repeatInterleave, tile, upsampleNearest, diagonal, tril, triu },
  ...{ indexSelect, gather, scatterAdd, embedding, renormRows, oneHot, maskedFill },
  ...{ windows, fold, conv1d, conv2d, conv3d, convTranspose1d, convTranspose2d, convTranspose3d },
  ...{ maxPool1d, maxPool2d, maxPool3d, avgPool1d, avgPool2d, avgPool3d },
};
