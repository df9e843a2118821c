/** kernels: the kernels that ops lower to: generated from the loop IR, GEMM, attention, scan and scatter, random numbers. */

export {
  type AttentionInput,
  type AttentionMask,
  type AttentionOperand,
  type AttentionShape,
  attentionBackwardCalls,
  attentionCalls,
  type BackwardProblem,
  type CachedAttentionProblem,
  type CachedShape,
  type ForwardProblem,
  keptBitsShape,
  type NewHeads,
  storesKeptBits,
} from "./attention/index.js";
export {
  backendOf,
  canComboRows,
  canGroupColumns,
  capabilitiesOf,
  compareOnDevice,
  lowerCalls,
} from "./backend.js";
export type { Backend } from "./backend-interface.js";
export type { Capabilities } from "./capabilities.js";
export { maxColumnsPerBlock, reducesInThread } from "./codegen/cuda/column-config.js";
export {
  type ColumnSumLayout,
  columnSumSlowdown,
  columnSumTarget,
  defaultColumnPartials,
} from "./codegen/cuda/column-sum-layout.js";
export { columnScratchBytes, isSplitReduction } from "./codegen/cuda/combo/column-group.js";
export { columnSumLayout } from "./codegen/cuda/row-config.js";
export { rowLanesOf } from "./codegen/wasm/configs.js";
export type { IndexedTable, RowMapProblem } from "./compact-rows/problem.js";
export {
  type ChannelsLastOperands,
  type ChannelsLastShape,
  type ConvolutionDirection,
  type ConvolutionProblem,
  type ConvolutionShape,
  convolutionCalls,
  type DepthwiseOperands,
  isChannelsLast,
  isDepthwise,
  isTf32,
  type Pair,
  paddedChannels,
  readsTransposedWeight,
  storedDtype,
  writtenOperand,
} from "./convolution/index.js";
export { launchBytes, maxVectorBytes, sectorBytes, trafficUs, warpSize } from "./cost-model.js";
export { denseKernels } from "./dense/index.js";
export {
  type Addend,
  canFuseEpilogue,
  canGroupGemms,
  canShareActivations,
  colsumRows,
  cublasLtKey,
  type Epilogue,
  epilogueCandidates,
  exactGemmCandidates,
  firstNativeAlgorithm,
  type GemmDesc,
  type GemmDtype,
  type GemmInputDtype,
  type GemmProblem,
  type GemmShape,
  gemmCalls,
  gemmCandidates,
  gemmScratchBytes,
  groupedCandidates,
  hasNativeGemm,
  isProjection,
  type MatrixLayout,
  maxGroupedConfigs,
  maxSkinnyRows,
  type Operand,
  operandToTranspose,
  type Prologue,
  prefersFusedEpilogue,
  prefersSum,
  prefersTransposedB,
  prologueCandidates,
  sumCandidates,
} from "./gemm/index.js";
export {
  type ColumnLaunch,
  columnCalls,
  type KernelCall,
  type LoopCall,
  type LoopOperand,
  type LoopView,
  type RowLaunch,
  rowCalls,
} from "./kernel-call.js";
export type { ColumnStride, InputStrides } from "./launch-config.js";
export { isInWords, type PlainCopy } from "./multi-tensor/copy.js";
export { chunkCount, chunkedReduceCalls } from "./multi-tensor/reduce.js";
export type { ChunkedReduceLaunch, ReducedVector } from "./multi-tensor/reduce-problem.js";
export { maxTransposes, type TransposedMatrix, transposeLaunchOf } from "./multi-tensor/transpose.js";
export {
  blocksForCalls,
  blocksForRows,
  type Distribution,
  decodeState,
  drawHostValues,
  drawIntegers,
  drawKernel,
  drawLaunch,
  drawValues,
  drawWords,
  encodeState,
  type Integers,
  keepAll,
  keepMask,
  normal,
  numbersPerCall,
  orderNumbers,
  orthogonal,
  orthogonalKernels,
  orthogonalShape,
  permutation,
  type RandomState,
  type RandomStream,
  randomKernels,
  type Seed,
  scaleOfKept,
  standardNormal,
  standardUniform,
  stateBytes,
  thresholdOf,
  truncationOf,
  uniform,
  type ValueDtype,
  valueDtypes,
  valueKernel,
  valueLaunch,
} from "./random/index.js";
export {
  type Scan,
  type ScanDtype,
  type ScatterAdd,
  type ScatterGroup,
  type ScatterShape,
  scanCalls,
  scatterAddCalls,
} from "./scan-scatter/index.js";
export { type HostSortDtype, hostSortDtypes, hostSortKernel, maxMergedRow } from "./sorting/index.js";
export { CallTrace, submit } from "./submit.js";
