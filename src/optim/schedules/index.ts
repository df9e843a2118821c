/** Learning rate schedules. */

export { type CosineOptions, CosineSchedule } from "./cosine.js";
export { type LambdaOptions, LambdaSchedule, type LrLambda } from "./lambda.js";
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
export { type WarmupOptions, WarmupSchedule } from "./warmup.js";
