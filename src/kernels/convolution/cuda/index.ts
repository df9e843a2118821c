/** convolution/cuda: convolutions in CUDA C++: implicit GEMM with tiles, or one thread for each result if groups have few channels. */

export { channelsLastConvolution, listChannelsLastConfigs } from "./channels-last/index.js";
export { convolutionScratchBytes, lowerConvolutionOnCuda } from "./launch.js";
