/** Learning rate schedules. */

export type { ChainedOptions, SequentialOptions } from "./combined.js";
export { type CosineOptions, CosineSchedule } from "./cosine.js";
export type { CyclicOptions } from "./cyclic.js";
export type { ExponentialOptions, PolynomialOptions } from "./decay.js";
export { type LambdaOptions, LambdaSchedule, type LrLambda } from "./lambda.js";
export type { LinearOptions } from "./linear.js";
export * as lrScheduler from "./lr-scheduler.js";
export { type OneCycleOptions, OneCycleSchedule } from "./one-cycle.js";
export { type PlateauOptions, type PlateauState, ReduceOnPlateau } from "./plateau.js";
export { Schedule, type ScheduleState } from "./schedule.js";
export {
  type ConstantOptions,
  ConstantSchedule,
  type MultiStepOptions,
  MultiStepSchedule,
  type StepOptions,
  StepSchedule,
} from "./steps.js";
export { SWALR, type SwaLrOptions } from "./swa-lr.js";
export type { WarmRestartsOptions } from "./warm-restarts.js";
export { type WarmupOptions, WarmupSchedule } from "./warmup.js";
