/** The events of a CrossAsset job, as plain records: for displays, logs and programs. */

import type { RunPhase } from "../../records/index.js";
import type { EpochRecord, StepFigures } from "../../train/index.js";
import type { FoldResult, JobResults } from "./results.js";

/** A position in the job. Folds and epochs count from 0. */
export interface JobPosition {
  readonly fold: number;
  readonly folds: number;
  readonly epoch: number;
  readonly epochs: number;
}

/** An event of a job, for its listener. */
export type JobEvent =
  | { readonly kind: "device"; readonly name: string; readonly budgetBytes: number }
  | {
      readonly kind: "data";
      /** The file, or the generator. */
      readonly source: string;
      readonly bars: number;
      readonly samples: number;
      readonly isCached: boolean;
      readonly seconds: number;
    }
  /** The work before the next step. */
  | { readonly kind: "phase"; readonly phase: RunPhase }
  | {
      readonly kind: "fold";
      readonly fold: number;
      readonly folds: number;
      readonly trainSamples: number;
      readonly testSamples: number;
    }
  | ({ readonly kind: "step" } & JobPosition & StepFigures & { readonly usedBytes: number })
  | ({ readonly kind: "epoch" } & JobPosition & {
        /** Completed steps of the job. */
        readonly step: number;
        readonly record: EpochRecord;
        readonly secondsLeft: number;
      })
  | { readonly kind: "fold end"; readonly step: number; readonly result: FoldResult }
  | { readonly kind: "checkpoint"; readonly step: number; readonly file: string }
  | ({ readonly kind: "resumed"; readonly file: string } & JobPosition & {
        /** Steps of the job: completed before, and in total. */
        readonly step: number;
        readonly steps: number;
      })
  | { readonly kind: "end"; readonly results: JobResults };

/** Receives the events of a job. */
export type JobListener = (event: JobEvent) => void;
