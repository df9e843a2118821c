/** kernels/dense: decompositions of small dense matrices, on the host. */

export { denseKernels } from "./routines.js";
