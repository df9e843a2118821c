/** The functions of `nn.utils`. */

export * as rnn from "./padded-sequences.js";
export { parametersToVector, vectorToParameters } from "./parameter-vectors.js";
export { removeSpectralNorm, type SpectralNormOptions, spectralNorm } from "./spectral-norm.js";
export { removeWeightNorm, type WeightNormOptions, weightNorm } from "./weight-norm.js";
