/** convolution/cuda: convolutions in CUDA C++: implicit GEMM with tiles, or without tiles if groups have few channels. */

export { channelsLastConvolution } from "./channels-last/index.js";
export { isDepthwiseConvolution } from "./depthwise/index.js";
export { convolutionScratchBytes, countConvolutionCandidates, lowerConvolutionOnCuda } from "./launch.js";
