/** ops/linear-algebra: decompositions and solvers of dense matrices, which run on the host. Matrix products are in `matmul/`. */

export { choleskyFactor, luFactor, luPermutation, orthonormalComplement, qrFactor } from "./factors.js";
export { eighFactor, eighValues, gapQuotient, pseudoInverse, svdFactor, svdValues } from "./spectral.js";
export { cofactor, determinant, inverse, logAbsDeterminant, matrixExponential, solve } from "./square.js";
export { triangularPart, triangularSolve } from "./triangles.js";
