/** kernels: what ops lower to. Data types, and the code that the drivers run. */

export {
  type AttentionBackwardProblem,
  type AttentionInput,
  type AttentionMask,
  type AttentionOperand,
  type AttentionProblem,
  type AttentionShape,
  attend,
  attendBackward,
} from "./attention/index.js";
export { type CallListener, listenToCalls } from "./call-listener.js";
export { type Capabilities, capabilitiesOf } from "./capabilities.js";
export { columnPartialCount } from "./codegen/cuda/column-partials.js";
export { columnScratchBytes, isSplitReduction } from "./codegen/cuda/combo/column-group.js";
export { canSumColumns } from "./codegen/cuda/row-config.js";
export { rowLanesOf } from "./codegen/wasm/configs.js";
export {
  canFuseEpilogue,
  canGroupGemms,
  colsumRows,
  cublasLtKey,
  type Epilogue,
  firstNativeAlgorithm,
  type GemmDesc,
  type GemmDtype,
  type GemmInputDtype,
  type GemmProblem,
  type GemmShape,
  gemm,
  gemmCandidates,
  gemmScratchBytes,
  gemmWithEpilogue,
  groupedGemm,
  hasNativeGemm,
  type MatrixLayout,
  type Operand,
  prefersTransposedB,
} from "./gemm/index.js";
export {
  type ColumnLaunch,
  canGroupColumns,
  launchColumnGroup,
  launchColumns,
  launchPartials,
  launchRows,
  type RowLaunch,
} from "./launch.js";
export { canComboRows, launchRowCombo } from "./launch-combo.js";
export { isInWords, launchCopies, type PlainCopy } from "./multi-tensor/copy.js";
export { type ChunkedReduceLaunch, chunkCount, launchChunkedReduce } from "./multi-tensor/reduce.js";
export { maxTransposes, type TransposedMatrix, transposeLaunchOf } from "./multi-tensor/transpose.js";
export {
  blocksForWords,
  decodeState,
  drawWords,
  encodeState,
  keepAll,
  keepMask,
  normal,
  permutation,
  type RandomState,
  randomKernels,
  type Seed,
  stateBytes,
  thresholdOf,
  uniform,
} from "./random/index.js";
export {
  launchScan,
  launchScatterAdd,
  type Scan,
  type ScatterAdd,
  type WalkDtype,
} from "./scan-scatter/index.js";
