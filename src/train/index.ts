/** train: the trainer and what it tells; general, of no application's own. */

export { ClassificationFigures } from "./classification.js";
export { EarlyStopping, type EarlyStoppingOptions, type EarlyStoppingState } from "./early-stopping.js";
export { Predictor, type PredictorOptions } from "./predict.js";
export {
  type EpochRecord,
  Trainer,
  type TrainerOptions,
  type TrainerPosition,
  type TrainingSummary,
} from "./trainer.js";
