/** lrScheduler: all schedules, with PyTorch's names. */

export { ChainedScheduler, SequentialLR } from "./combined.js";
export { CosineSchedule as CosineAnnealingLR } from "./cosine.js";
export { CyclicLR } from "./cyclic.js";
export { ExponentialLR, PolynomialLR } from "./decay.js";
export { LambdaSchedule as LambdaLR } from "./lambda.js";
export { LinearLR } from "./linear.js";
export { MultiplicativeLR } from "./multiplicative.js";
export { OneCycleSchedule as OneCycleLR } from "./one-cycle.js";
export { ReduceOnPlateau as ReduceLROnPlateau } from "./plateau.js";
export { Schedule as LRScheduler } from "./schedule.js";
export {
  ConstantSchedule as ConstantLR,
  MultiStepSchedule as MultiStepLR,
  StepSchedule as StepLR,
} from "./steps.js";
export { CosineAnnealingWarmRestarts } from "./warm-restarts.js";
