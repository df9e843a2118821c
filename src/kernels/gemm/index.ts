/** gemm: products of matrices on the CPU. Packed, blocked and threaded where they are large, direct where they are small. */

export type { GemmDtype } from "./element.js";
export { gemm, gemmScratchBytes } from "./gemm.js";
export type { GemmProblem, GemmShape, MatrixLayout, Operand } from "./problem.js";
