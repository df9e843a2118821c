/** optim: optimizers, gradient clipping and learning rate schedules, with PyTorch's formulas. */

export { Adadelta, type AdadeltaOptions } from "./adadelta.js";
export { Adagrad, type AdagradOptions } from "./adagrad.js";
export { Adam, type AdamOptions, AdamW, SparseAdam, type SparseAdamOptions } from "./adam.js";
export { Adamax, type AdamaxOptions } from "./adamax.js";
export { ASGD, type ASGDOptions } from "./asgd.js";
export { type ClipNormOptions, clipGradNorm, clipGradValue } from "./clip.js";
export {
  type DefinedOptimizer,
  type DefinedOptions,
  defineOptimizer,
  type OptimizerDefinition,
  type UpdateInputs,
} from "./define-optimizer.js";
export type { Formula, FormulaCondition, FormulaOperand } from "./formula.js";
export { GradScaler, type GradScalerOptions } from "./grad-scaler.js";
export { LBFGS, type LBFGSOptions } from "./lbfgs.js";
export { Lion, type LionOptions } from "./lion.js";
export { Muon, type MuonOptions } from "./muon.js";
export { NAdam, type NAdamOptions } from "./nadam.js";
export { type CommonOptions, type GroupOptions, Optimizer, type ParameterSource } from "./optimizer.js";
export { type GroupSettings, ParameterGroup } from "./parameter-group.js";
export { RAdam, type RAdamOptions } from "./radam.js";
export { RMSprop, type RMSpropOptions } from "./rmsprop.js";
export { Rprop, type RpropOptions } from "./rprop.js";
export {
  type ChainedOptions,
  type ConstantOptions,
  ConstantSchedule,
  type CosineOptions,
  CosineSchedule,
  type CyclicOptions,
  type ExponentialOptions,
  type LambdaOptions,
  LambdaSchedule,
  type LinearOptions,
  type LrLambda,
  lrScheduler,
  type MultiStepOptions,
  MultiStepSchedule,
  type OneCycleOptions,
  OneCycleSchedule,
  type PlateauOptions,
  type PlateauState,
  type PolynomialOptions,
  ReduceOnPlateau,
  Schedule,
  type ScheduleState,
  type SequentialOptions,
  type StepOptions,
  StepSchedule,
  type SwaLrOptions,
  type WarmRestartsOptions,
  type WarmupOptions,
  WarmupSchedule,
} from "./schedules/index.js";
export { SGD, type SGDOptions } from "./sgd.js";
export * as swaUtils from "./swa-utils.js";
