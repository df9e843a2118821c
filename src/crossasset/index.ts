/** crossasset: the CrossAsset application: bars, samples, the model, and the job that trains and tests it. */

export {
  type Bars,
  type BarsSummary,
  checkBars,
  generateBars,
  readBars,
  writeBars,
} from "./bars/index.js";
export type { JobEvent, JobListener } from "./job/events.js";
export { type JobOptions, runJob } from "./job/job.js";
export { type JobRun, type JobRunOptions, openJobRun, type ResumedJob, stateOfRun } from "./job/job-run.js";
export { classNames, type FoldResult, type JobResults } from "./job/results.js";
export { defaultSettings, type JobSettings } from "./job/settings.js";
export { CrossAsset, type CrossAssetOptions } from "./model.js";
