/** What a CrossAsset job tells while it runs: for displays, logs and machines. Plain records. */

import type { RunPhase } from "../../records/index.js";
import type { EpochRecord } from "../../train/index.js";
import type { FoldResult, JobResults } from "./results.js";

/** Where in the job something happened; folds and epochs count from 0. */
export interface JobPlace {
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
      /** The file, or what made the bars. */
      readonly source: string;
      readonly bars: number;
      readonly samples: number;
      readonly isCached: boolean;
      readonly seconds: number;
    }
  /** What comes before the next step. */
  | { readonly kind: "phase"; readonly phase: RunPhase }
  | {
      readonly kind: "fold";
      readonly fold: number;
      readonly folds: number;
      readonly trainSamples: number;
      readonly testSamples: number;
    }
  | ({ readonly kind: "step" } & JobPlace & StepFigures)
  | ({ readonly kind: "epoch" } & JobPlace & {
        /** Of the whole job, so far. */
        readonly step: number;
        readonly record: EpochRecord;
        readonly secondsLeft: number;
      })
  | { readonly kind: "fold end"; readonly step: number; readonly result: FoldResult }
  | { readonly kind: "checkpoint"; readonly step: number; readonly file: string }
  | ({ readonly kind: "resumed"; readonly file: string } & JobPlace & {
        /** Of the whole job, done before and in all. */
        readonly step: number;
        readonly steps: number;
      })
  | { readonly kind: "end"; readonly results: JobResults };

export interface StepFigures {
  /** Of the epoch, done so far and in all. */
  readonly batch: number;
  readonly batches: number;
  /** Of the whole job, done so far and in all. */
  readonly step: number;
  readonly steps: number;
  /** The loss that came to the host last. */
  readonly loss: number | undefined;
  /** Samples that were trained on in this process, one as often as it was. */
  readonly samples: number;
  /** As `Trainer.samplesPerSecond` measures it. */
  readonly samplesPerSecond: number | undefined;
  readonly usedBytes: number;
  readonly secondsLeft: number;
}

/** Receives the events of a job. */
export type JobListener = (event: JobEvent) => void;
