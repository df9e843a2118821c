/** tensor: tensors, devices and their steps, and the functions that create tensors. */

import "./device-methods/index.js";
import "./methods/index.js";

export { blockDiag, cdist, type DistanceOptions, einsum, pdist, tensordot } from "./algebra/index.js";
export { type AutocastOptions, autocast, isAutocastEnabled } from "./autocast.js";
export type { AutocastDtype } from "./autocast-mode.js";
export * as autograd from "./autograd/index.js";
export { checkpoint } from "./checkpoint.js";
export { captureStep } from "./compiled/captured-step.js";
export {
  type CompiledStep,
  type CompileOptions,
  latestPlanOf,
  listenToNumbers,
  type ReportOptions,
  type StepParallelism,
} from "./compiled/compiled-step.js";
export { type BadIndices, badIndexError } from "./compiled/step-figures.js";
export type { StepPlan } from "./compiled/step-plan.js";
export type { StepResult } from "./compiled/step-results.js";
export {
  type ConvolutionOptions,
  conv1d,
  conv2d,
  conv3d,
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
  paddingOf,
  type TransposedConvolutionOptions,
} from "./convolution.js";
export {
  arange,
  eye,
  fromTyped,
  full,
  linspace,
  ones,
  onesLike,
  type TensorOptions,
  tensor,
  zeros,
  zerosLike,
} from "./creation.js";
export { empty, emptyLike, fullLike, logspace, trilIndices, triuIndices } from "./creation-like.js";
export { isDeviceName, type TensorDestination } from "./destination.js";
export {
  Device,
  type DeviceName,
  type DeviceOptions,
  defaultDevice,
  device,
  deviceFor,
  requireDevice,
  type Synchronous,
} from "./device.js";
export type { BackwardOptions } from "./device-methods/backward.js";
export { type FloatLimits, finfo, type IntegerLimits, iinfo } from "./dtype-limits.js";
export { type FiniteDifferenceOptions, gradient } from "./finite-differences.js";
export {
  chooseDtype,
  type NestedArray,
  type NestedList,
  type NumberArray,
  readNested,
  type TypedNumbers,
} from "./format/nested.js";
export { cat, oneHot, stack, where } from "./functions.js";
export type { GradientDelivery, GradientExchange } from "./gradient-exchange.js";
export type { GradientHook, HookHandle } from "./gradient-hook.js";
export { dtypeOfArray, encodeElements, type HostValues } from "./host-values.js";
export {
  atleast1d,
  atleast2d,
  atleast3d,
  broadcastShapes,
  broadcastTensors,
  cartesianProd,
  columnStack,
  combinations,
  dstack,
  hstack,
  meshgrid,
  vander,
  vstack,
} from "./joining.js";
export { LeafGradient } from "./leaf-gradient.js";
export * as linalg from "./linalg/index.js";
export {
  type AvgPoolOptions,
  avgPool1d,
  avgPool2d,
  avgPool3d,
  avgPoolOptionNames,
  type MaxPoolOptions,
  type MaxPoolResult,
  maxPool1d,
  maxPool2d,
  maxPool3d,
  maxPoolOptionNames,
  type PoolOptions,
} from "./pooling.js";
export {
  bernoulli,
  type MultinomialOptions,
  multinomial,
  normal,
  rand,
  randint,
  randintLike,
  randLike,
  randn,
  randnLike,
  randperm,
} from "./random.js";
export { drawPositionOf, getRngState, type RngState, setRngState } from "./rng-state.js";
export { runtimeOf } from "./runtime-of.js";
export { bucketize, isin, type SearchOptions, searchsorted } from "./searching.js";
export {
  currentSeed,
  type Draw,
  type DrawPosition,
  drawPosition,
  manualSeed,
  nextDraw,
  rejectingDraws,
  restoreDrawPosition,
} from "./seed.js";
export { elementsAs, misfitOf, numberOf, type StoredElements, writeElements } from "./stored-elements.js";
export { type DeviceValue, Tensor } from "./tensor.js";
export type { GradientHolder } from "./tensor-handle.js";
export { rejectMembers } from "./vmap/dispatch.js";
export type { Randomness } from "./vmap/level.js";
export { type VmapOptions, vmap } from "./vmap/vmap.js";
export {
  bartlettWindow,
  blackmanWindow,
  hammingWindow,
  hannWindow,
  kaiserWindow,
  type WindowOptions,
} from "./windows.js";
