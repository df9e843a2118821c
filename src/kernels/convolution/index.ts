/** convolution: 1-D and 2-D convolutions and their gradients, by implicit GEMM on CUDA: patches are gathered, not copied to memory. */

export { convolutionCalls } from "./convolution.js";
export {
  type ChannelsLastOperands,
  type ChannelsLastShape,
  type ConvolutionDirection,
  type ConvolutionEpilogue,
  type ConvolutionProblem,
  type ConvolutionShape,
  type DepthwiseOperands,
  isChannelsLast,
  isDepthwise,
  isTf32,
  type Pair,
  paddedChannels,
  readsTransposedWeight,
  storedDtype,
  writtenOperand,
} from "./problem.js";
