/**
 * gemm: products of matrices. On the CPU packed, blocked and threaded where they are large, direct where they are small; on
 * a GPU by its library.
 */

export type { GemmDtype } from "./element.js";
export { gemm, gemmScratchBytes } from "./gemm.js";
export type { GemmProblem, GemmShape, MatrixLayout, Operand, ProductDtype } from "./problem.js";
