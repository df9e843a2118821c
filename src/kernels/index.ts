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
export { sumBlocks } from "./codegen/cuda/column-partials.js";
export { columnScratchBytes, hasTwoSteps } from "./codegen/cuda/combo/column-group.js";
export { canSumColumns } from "./codegen/cuda/row-config.js";
export { rowLanesOf } from "./codegen/wasm/configs.js";
export {
  type Finish,
  firstOwnChoice,
  type GemmDtype,
  type GemmOutline,
  type GemmProblem,
  type GemmShape,
  gemm,
  gemmChoices,
  gemmFinished,
  gemmFinishes,
  gemmIsOwn,
  gemmMany,
  gemmPrefersTurned,
  gemmScratchBytes,
  gemmTogether,
  libraryProductKey,
  type MatrixLayout,
  type Operand,
  type ProductDtype,
  summedRows,
} from "./gemm/index.js";
export {
  beginColumns,
  type ColumnLaunch,
  columnsTogether,
  launchColumns,
  launchColumnsTogether,
  launchRows,
  type RowLaunch,
} from "./launch.js";
export { launchRowsBeside, rowsBeside } from "./launch-combo.js";
export { isInWords, launchCopies, type PlainCopy } from "./multi-tensor/copy.js";
export { countParts, launchParts, type PartsLaunch } from "./multi-tensor/reduce.js";
export { mostTurned, type TurnedMatrix, turnLaunchOf } from "./multi-tensor/transpose.js";
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
