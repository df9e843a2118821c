/** convolution: 1-D and 2-D convolutions and their gradients, by implicit GEMM on CUDA: patches are gathered, not copied to memory. */

export { convolutionCalls } from "./convolution.js";
export {
  type ConvolutionDirection,
  type ConvolutionProblem,
  type ConvolutionShape,
  type Pair,
  writtenOperand,
} from "./problem.js";
