/** train: the trainer, checkpoints, run folders and their health. Independent of any application. */

export {
  type CheckpointContents,
  captureCheckpoint,
  loadCheckpoint,
  type RestoredCheckpoint,
  restoreCheckpoint,
  saveCheckpoint,
} from "./checkpoint.js";
export { type Checkpoint, checkpointFormat, checkpointVersion } from "./checkpoint-file.js";
export {
  CheckpointStore,
  type CheckpointStoreOptions,
  type ListedCheckpoint,
  type LoadedCheckpoint,
  type RejectedCheckpoint,
} from "./checkpoints.js";
export { ClassificationFigures } from "./classification.js";
export {
  type ExpectedCheckpoint,
  requireCompatible,
  requireSameSettings,
  type TensorShapes,
} from "./compatibility.js";
export { EarlyStopping, type EarlyStoppingOptions, type EarlyStoppingState } from "./early-stopping.js";
export * as jsonShapes from "./files/json-shapes.js";
export type { LogSizes } from "./files/log-file.js";
export { RecorderLog, type RecorderLogOptions } from "./files/recorder-log.js";
export { type HealthOptions, healthOf, type RunHealth } from "./health.js";
export { InspectionReader, type InspectionReading, readInspection } from "./inspection/read-inspection.js";
export {
  type RankReading,
  RanksReader,
  type RanksReading,
  readRanks,
  sumSpans,
} from "./inspection/read-ranks.js";
export { type PlanReporter, RunRecorder, type RunRecorderOptions } from "./inspection/run-recorder.js";
export {
  countSteps,
  readSteps,
  StepLog,
  type StepRange,
  type StepRow,
  type StepSeries,
} from "./inspection/step-log.js";
export { requireRun } from "./missing-run.js";
export type { TrainerPosition } from "./position.js";
export { type PredictedBatch, Predictor, type PredictorOptions } from "./predict.js";
export { type RunReading, readRun, readRunRecord, readStatus } from "./read-run.js";
export { type FoundState, findCheckpoint } from "./resume-point.js";
export {
  inspectionFiles,
  legacyIncidentsFile,
  rankFileName,
  rankFiles,
  recorderOfRank,
  runFiles,
} from "./run-files.js";
export { type NewRun, type OpenedRun, type RunEnd, RunFolder, type RunFolderOptions } from "./run-folder.js";
export { runPhases } from "./run-phases.js";
export { RunServer, type RunServerOptions } from "./run-server.js";
export { requireRunSettings, stateOfRun } from "./run-state.js";
export { type ResumePoint, RunWriter, type RunWriterOptions } from "./run-writer.js";
export { epochShape, logSizesShape, positionShape } from "./saved-training.js";
export {
  type CaptureOptions,
  captureState,
  describeState,
  extrasOf,
  type RestoredExtras,
  restoreState,
  restoreWeights,
  type StateExtras,
} from "./state.js";
export { type StepFigures, StepProgress } from "./step-progress.js";
export { isStopped } from "./stopping/is-stopped.js";
export { type StopOptions, type StopSignals, stopOnSignals } from "./stopping/stop-on-signals.js";
export { Trainer, type TrainerOptions } from "./trainer.js";
export type { OneOrNamed, Stateful, TrainingParts } from "./training-parts.js";
export type { EpochRecord, TrainingSummary } from "./training-summary.js";
export type { SentStep, TrainingWatcher } from "./training-watcher.js";
