/** ir: the loop IR, independent of the device: data types, expressions, kernels as plain records, and iteration spaces. */

export { checkColumnKernel, checkRowKernel, maxColumnValues } from "./check-kernel.js";
export { gradientOf } from "./derivative.js";
export {
  type Dtype,
  type DtypeKind,
  dtypeNames,
  dtypes,
  type ElementArray,
  type InputDtype,
  inputDtypes,
} from "./dtypes.js";
export { viewElements } from "./elements.js";
export { term } from "./expression-builder.js";
export {
  countUses,
  invariantNodesOf,
  isUniform,
  type Load,
  loadsOf,
  operandsOf,
  replaceIn,
  subexpressionsOf,
  uses64Bits,
} from "./expression-walk.js";
export {
  type Float8Dtype,
  type Float8Format,
  float8Formats,
  float8Nan,
  isFloat8,
  narrowToFloat8,
  widenFloat8,
} from "./float8.js";
export { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "./half.js";
export { staysInRow } from "./index-range.js";
export {
  type Axis,
  type InnerStride,
  type Iteration,
  innerStrideOf,
  iterateElements,
  iterateRows,
  type Strides,
} from "./iteration.js";
export { kernelKey } from "./kernel-key.js";
export {
  type BinaryOp,
  binaryOps,
  type ChunkedReduceKernel,
  type ColumnKernel,
  type CompareOp,
  type Compute,
  compareOps,
  type Expression,
  type Output,
  type OutputLayout,
  passedType,
  type ReduceOp,
  type RowKernel,
  roundings,
  type Stage,
  type UnaryOp,
  unaryOps,
} from "./kernels.js";
export { promote, promoteWithScalar } from "./promotion.js";
export { identityOf } from "./reductions.js";
export { factsOf, type RowFacts } from "./row-facts.js";
