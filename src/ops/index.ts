/** ops: the op table. An entry says an op's shape and dtype rule, its gradient, what it saves and its lowering. */

export { copyArray } from "./copy.js";
export {
  allocateArray,
  broadcastStrides,
  contiguousStrides,
  type DeviceArray,
  isContiguous,
  type Layout,
  viewArray,
} from "./device-array.js";
export * as activations from "./elementwise/activations.js";
export { add, div, isFloat, maximum, minimum, mul, pow, sub } from "./elementwise/arithmetic.js";
export { cast, contiguous } from "./elementwise/cast.js";
export * as comparisons from "./elementwise/comparisons.js";
export * as functions from "./elementwise/functions.js";
export { linear, matmul } from "./matmul/matmul.js";
export { expand, permute, reshape } from "./movement/reshape.js";
export type {
  Apply,
  Attributes,
  CompositeOp,
  Composition,
  GradientRule,
  Gradients,
  KernelOp,
  Lowering,
  NoAttributes,
  Op,
  OperandType,
  ValueType,
  ViewOp,
} from "./op.js";
export { mean, type ReductionAttributes, sum } from "./reduction/sum.js";
export { applyTo, firstOf, runInto, runOp, typeOfOperand } from "./run.js";
export { opTable } from "./table.js";
export { axesOf, axisOf, broadcastShapes, formatShape, type Shape, sizeOf } from "./shape.js";
