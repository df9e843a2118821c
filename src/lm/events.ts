/** The events of a training of a language model, as plain records: for displays, logs and programs. */

import type { RunPhase } from "../records/index.js";
import type { EpochRecord, StepFigures } from "../train/index.js";

/** The loss on texts that the model is not trained on. */
export interface Evaluation {
  /** Completed steps. */
  readonly step: number;
  /** The mean over the tokens that count, in nats. */
  readonly loss: number;
  /** e to the power of the loss. */
  readonly perplexity: number;
  /** Tokens that count. */
  readonly tokens: number;
}

/** A text that the model has written while it was trained. */
export interface SampleText {
  readonly prompt: string;
  readonly text: string;
}

/** Counts of the texts. */
export interface DataFigures {
  readonly rows: number;
  /** Tokens of the rows, without padding. */
  readonly tokens: number;
  /** Tokens that count in the loss. */
  readonly countedTokens: number;
  readonly evaluationRows: number;
}

/** The results of a training. */
export interface JobResults {
  readonly steps: number;
  readonly epochs: readonly EpochRecord[];
  readonly evaluations: readonly Evaluation[];
  /** All parameters, and those that were trained. */
  readonly parameters: number;
  readonly trainedParameters: number;
}

/** An event of a training, for its listener. */
export type JobEvent =
  | { readonly kind: "device"; readonly name: string; readonly budgetBytes: number }
  | ({ readonly kind: "data" } & DataFigures)
  | {
      readonly kind: "model";
      /** The class, such as Llama. */
      readonly name: string;
      readonly parameters: number;
      readonly trainedParameters: number;
    }
  /** The work before the next step. */
  | { readonly kind: "phase"; readonly phase: RunPhase }
  | ({ readonly kind: "step" } & JobStep)
  | {
      readonly kind: "epoch";
      readonly epochs: number;
      readonly step: number;
      readonly record: EpochRecord;
      readonly tokensPerSecond: number | undefined;
    }
  | ({ readonly kind: "evaluation" } & Evaluation)
  | { readonly kind: "samples"; readonly step: number; readonly texts: readonly SampleText[] }
  | { readonly kind: "checkpoint"; readonly step: number; readonly file: string }
  | {
      readonly kind: "resumed";
      readonly file: string;
      /** Completed steps, and steps in total. */
      readonly step: number;
      readonly steps: number;
      readonly epoch: number;
    }
  | { readonly kind: "end"; readonly results: JobResults };

/** A completed step. */
export interface JobStep extends StepFigures {
  /** Counted from 0. */
  readonly epoch: number;
  readonly epochs: number;
  readonly usedBytes: number;
  /** Without padding; undefined before the first measurement. */
  readonly tokensPerSecond: number | undefined;
}

/** Receives the events of a training. */
export type JobListener = (event: JobEvent) => void;
