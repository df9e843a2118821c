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
export {
  launchScan,
  launchScatterAdd,
  type Scan,
  type ScatterAdd,
  type WalkDtype,
} from "./axis-walk/index.js";
export { type CallListener, listenToCalls } from "./call-listener.js";
export { isInWords, launchCopies, type PlainCopy } from "./copy-many.js";
export { columnScratchBytes, hasTwoSteps } from "./cuda-printer/column-group.js";
export { sumBlocks } from "./cuda-printer/column-sums.js";
export { canSumColumns } from "./cuda-printer/row-form.js";
export { type Dtype, type DtypeKind, dtypeNames, dtypes, type ElementArray } from "./dtypes.js";
export { viewElements } from "./elements.js";
export { loadsOf, partsOf } from "./expression-walk.js";
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
export { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "./half.js";
export {
  type BinaryOp,
  binaryOps,
  type ColumnKernel,
  type ColumnPlaces,
  type CompareOp,
  type Compute,
  compareOps,
  type Expression,
  type Output,
  type PartsKernel,
  type ReduceOp,
  type RowKernel,
  type Stage,
  type UnaryOp,
  unaryOps,
} from "./ir.js";
export { type Iteration, iterateElements, iterateRows, type Strides } from "./iteration.js";
export {
  beginColumns,
  type ColumnLaunch,
  columnsTogether,
  launchColumns,
  launchColumnsTogether,
  launchRows,
  type RowLaunch,
} from "./launch.js";
export { launchRowsBeside, rowsBeside } from "./launch-beside.js";
export { promote, promoteWithScalar } from "./promotion.js";
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
export { countParts, launchParts, type PartsLaunch } from "./reduce-parts.js";
export { factsOf } from "./row-facts.js";
export { term } from "./term.js";
export { mostTurned, type TurnedMatrix, turnLaunchOf } from "./turn-many.js";
export { rowLanesOf } from "./wasm-printer/forms.js";
