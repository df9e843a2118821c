/** lm: trains language models on texts: the job of `holdfast train lm`. */

export { requireRunSettings, stateOfRun } from "../train/index.js";
export type {
  DataFigures,
  Evaluation,
  JobEvent,
  JobListener,
  JobResults,
  JobStep,
  SampleText,
} from "./events.js";
export { checkJob, type JobOptions, runJob } from "./job.js";
export { type JobRun, type JobRunOptions, openJobRun, type ResumedJob } from "./job-run.js";
export type { SampleOptions } from "./sampler.js";
export { defaultSettings, type JobSettings, type LrSchedule } from "./settings.js";
export type { TextRows } from "./text-rows.js";
