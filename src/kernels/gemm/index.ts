/**
 * gemm: products of matrices. On the CPU packed, blocked and threaded where they are large, direct where they are small; on
 * a GPU by its library, or in tiles of our own.
 */

export type { GemmDtype } from "./cpu/element.js";
export { cublasLtKey } from "./cublaslt/cublaslt.js";
export { hasNativeGemm } from "./cuda.js";
export {
  firstNativeAlgorithm,
  type GemmDesc,
  type GemmInputDtype,
  type GemmProblem,
  type GemmShape,
  type MatrixLayout,
  type Operand,
} from "./desc.js";
export {
  canFuseEpilogue,
  canGroupGemms,
  gemmCalls,
  gemmCandidates,
  gemmScratchBytes,
  prefersTransposedB,
} from "./gemm.js";
export { colsumRows, type Epilogue } from "./sm90/index.js";
