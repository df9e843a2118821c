/** gemm: matrix multiplication. CPU: direct, packed or BLAS; GPU: cuBLASLt, DMMA (f32) and Hopper wgmma kernels. */

export type { GemmDtype } from "./cpu/element.js";
export { cublasLtKey } from "./cublaslt/cublaslt.js";
export { hasNativeGemm } from "./cuda.js";
export {
  type Addend,
  firstNativeAlgorithm,
  type GemmDesc,
  type GemmInputDtype,
  type GemmProblem,
  type GemmShape,
  type MatrixLayout,
  type Operand,
} from "./desc.js";
export { exactGemmCandidates } from "./f32.js";
export {
  canFuseEpilogue,
  canGroupGemms,
  canShareActivations,
  epilogueCandidates,
  gemmCalls,
  gemmCandidates,
  gemmScratchBytes,
  groupedCandidates,
  isProjection,
  operandToTranspose,
  prefersFusedEpilogue,
  prefersSum,
  prefersTransposedB,
  prologueCandidates,
  sumCandidates,
} from "./gemm.js";
export { maxSkinnyRows, type Prologue } from "./skinny/index.js";
export { colsumRows, type Epilogue, maxGroupedConfigs } from "./sm90/index.js";
