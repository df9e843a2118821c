/**
 * gemm: products of matrices. On the CPU packed, blocked and threaded where they are large, direct where they are small; on
 * a GPU by its library, or in tiles of our own.
 */

export type { GemmDtype } from "./element.js";
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
export { libraryProductKey } from "./library-product.js";
export {
  firstOwnChoice,
  type GemmOutline,
  type GemmProblem,
  type GemmShape,
  type MatrixLayout,
  type Operand,
  type ProductDtype,
} from "./problem.js";
export { type Finish, summedRows } from "./warpgroup/index.js";
