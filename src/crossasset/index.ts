/** crossasset: the CrossAsset application: bars, samples, the model, and the job that trains and tests it. */

export { requireRunSettings, stateOfRun } from "../train/index.js";
export {
  type Bars,
  checksumOfBars,
  generateBars,
  readBars,
  writeBars,
} from "./bars/index.js";
export type { JobEvent, JobListener } from "./job/events.js";
export { type JobOptions, runJob } from "./job/job.js";
export type { ResumedJob } from "./job/job-checkpoint.js";
export { type JobRun, type JobRunOptions, openJobRun } from "./job/job-run.js";
export { classNames, type FoldResult, type JobResults, type PredictionFigures } from "./job/results.js";
export { defaultSettings, type JobSettings } from "./job/settings.js";
export {
  type EvaluatedModel,
  openTrainedModel,
  type Prediction,
  type PredictOptions,
  type TrainedModel,
} from "./job/trained-model.js";
export { CrossAsset, type CrossAssetOptions } from "./model.js";
export { type BarsSummary, checkBars } from "./samples/index.js";
