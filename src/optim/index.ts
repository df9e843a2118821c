/** optim: optimizers, gradient clipping and learning rate schedules, with PyTorch's formulas. */

export { Adam, type AdamOptions, AdamW, SparseAdam, type SparseAdamOptions } from "./adam.js";
export { type ClipNormOptions, clipGradNorm, clipGradValue } from "./clip.js";
export { type CommonOptions, type GroupOptions, Optimizer, type ParameterSource } from "./optimizer.js";
export { type GroupSettings, ParameterGroup } from "./parameter-group.js";
export {
  type ConstantOptions,
  ConstantSchedule,
  type CosineOptions,
  CosineSchedule,
  type LambdaOptions,
  LambdaSchedule,
  type LrLambda,
  type MultiStepOptions,
  MultiStepSchedule,
  type OneCycleOptions,
  OneCycleSchedule,
  type PlateauOptions,
  type PlateauState,
  ReduceOnPlateau,
  Schedule,
  type ScheduleState,
  type StepOptions,
  StepSchedule,
  type WarmupOptions,
  WarmupSchedule,
} from "./schedules/index.js";
export { SGD, type SGDOptions } from "./sgd.js";
