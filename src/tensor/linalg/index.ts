/** linalg: linear algebra with PyTorch's names. Decompositions and solvers run on the CPU, in f32 and f64, over batches of matrices. */

export {
  type CholeskyOptions,
  cholesky,
  choleskyInverse,
  choleskySolve,
  type LuDecomposition,
  type LuFactors,
  lu,
  luFactor,
  luSolve,
  type QrDecomposition,
  type QrOptions,
  qr,
} from "./decompositions.js";
export { det, logdet, type SignAndLogarithm, slogdet } from "./determinants.js";
export {
  cond,
  type MatrixNormOptions,
  type MatrixOrder,
  matrixNorm,
  type NormOptions,
  norm,
  type VectorNormOptions,
  vectorNorm,
} from "./norms.js";
export { matrixExp, matrixPower, multiDot, vander, vecdot } from "./products.js";
export {
  inv,
  type LeastSquares,
  lstsq,
  matrixRank,
  pinv,
  type RankOptions,
  type SolveOptions,
  type SolveTriangularOptions,
  solve,
  solveTriangular,
  tensorinv,
  tensorsolve,
} from "./solvers.js";
export {
  type Eigen,
  eigh,
  eigvalsh,
  type SingularValues,
  type SvdOptions,
  svd,
  svdvals,
} from "./spectral.js";
