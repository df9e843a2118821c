/**
 * gemm: products of matrices. On the CPU packed, blocked and threaded where they are large, direct where they are small; on
 * a GPU by its library, or in tiles of our own.
 */

export type { GemmDtype } from "./cpu/element.js";
export { libraryProductKey } from "./cublaslt/cublaslt.js";
export {
  firstOwnChoice,
  type GemmOutline,
  type GemmProblem,
  type GemmShape,
  type MatrixLayout,
  type Operand,
  type ProductDtype,
} from "./desc.js";
export {
  gemm,
  gemmChoices,
  gemmFinished,
  gemmFinishes,
  gemmIsOwn,
  gemmMany,
  gemmPrefersTurned,
  gemmScratchBytes,
  gemmTogether,
} from "./gemm.js";
export { type Finish, summedRows } from "./sm90/index.js";
