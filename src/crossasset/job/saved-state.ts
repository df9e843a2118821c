/**
 * Validates the job state in a checkpoint. A checksum proves that a file is whole, not that this program wrote it. An invalid
 * state could silently restart a training.
 */

import { HoldfastError } from "../../errors/index.js";
import type { JsonRecord } from "../../records/index.js";
import type { EpochRecord } from "../../train/index.js";
import {
  epochShape,
  jsonShapes,
  type LogSizes,
  logSizesShape,
  positionShape,
  type TrainerPosition,
} from "../../train/index.js";
import { classNames, type FoldResult } from "./results.js";

/** The state that `JobRun.save` adds to a checkpoint, in addition to the settings. */
export interface SavedState {
  readonly fold: number;
  readonly position: TrainerPosition;
  /** The completed epochs of this fold. */
  readonly epochs: readonly EpochRecord[];
  /** The results of the earlier folds. */
  readonly results: readonly FoldResult[];
  /** The sizes of the run's logs; version 0.1.0 did not write them. */
  readonly logs?: LogSizes | undefined;
}

const { fits, listOf, optional, recordOf } = jsonShapes;

const wholeNumber = fits(
  (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  "a whole number, 0 or more",
);
/** NaN and the infinities are valid. */
const figure = fits((value) => typeof value === "number", "a number");
const row = fits(
  (value) => Array.isArray(value) && value.length === classNames.length,
  `a row of ${classNames.length} counts`,
);
const answers = { loss: figure, accuracy: figure, majority: figure, confusion: listOf(row) };
const shape = recordOf({
  fold: wholeNumber,
  position: positionShape,
  epochs: listOf(epochShape),
  results: listOf(
    recordOf({
      ...{
        fold: wholeNumber,
        trainSamples: wholeNumber,
        testSamples: wholeNumber,
        epochs: listOf(epochShape),
      },
      ...{ test: recordOf(answers), perScale: listOf(recordOf({ ...answers, minutes: wholeNumber })) },
    }),
  ),
  logs: optional(logSizesShape),
});

/** Returns a checkpoint's state as a job's state, or throws and names the first problem. */
export function readSavedState(state: JsonRecord, settings: JsonRecord): SavedState {
  const problem = shape(state, "it") ?? contradictionIn(state as unknown as SavedState, settings);
  if (problem === undefined) return state as unknown as SavedState;
  throw rejection(problem);
}

/** The number of steps of the folds, from the data and the settings. */
export interface JobLayout {
  /** Per fold: steps per epoch. */
  readonly stepsPerEpoch: readonly number[];
  readonly epochs: number;
}

/** Throws if the state's counts do not fit the job. `step` is the checkpoint's step. */
export function requireLayout(
  { step, fold, position }: Pick<SavedState, "fold" | "position"> & { readonly step: number },
  { stepsPerEpoch, epochs }: JobLayout,
): void {
  const perEpoch = stepsPerEpoch[fold];
  if (perEpoch === undefined)
    throw rejection(`fold is ${fold}, but the job has ${stepsPerEpoch.length} folds`);
  if (position.batch > perEpoch)
    throw rejection(
      `position.batch is ${position.batch}, but an epoch of fold ${fold} has ${perEpoch} batches`,
    );
  const inFold = position.epoch * perEpoch + position.batch;
  if (position.step !== inFold)
    throw rejection(`position.step is ${position.step}, but its epoch and batch belong to step ${inFold}`);
  const before = stepsPerEpoch.slice(0, fold).reduce((sum, steps) => sum + epochs * steps, 0);
  if (step !== before + inFold)
    throw rejection(`its step is ${step}, but its fold, epoch and batch belong to step ${before + inFold}`);
}

function contradictionIn({ fold, position, epochs, results }: SavedState, settings: JsonRecord) {
  const { folds, epochs: epochsPerFold } = settings;
  if (typeof folds === "number" && fold >= folds) return `fold is ${fold}, but the job has ${folds} folds`;
  if (results.length !== fold || results.some((result, index) => result.fold !== index))
    return `it has results of ${results.length} folds, but it is in fold ${fold}, or they are out of order`;
  if (typeof epochsPerFold === "number" && position.epoch > epochsPerFold)
    return `position.epoch is ${position.epoch}, but a fold has ${epochsPerFold} epochs`;
  if (epochs.length !== position.epoch || epochs.some((record, index) => record.epoch !== index))
    return `it has records of ${epochs.length} epochs, but position.epoch is ${position.epoch}, or they are out of order`;
  return undefined;
}

function rejection(problem: string): HoldfastError {
  return new HoldfastError(
    "BAD_STATE",
    `The checkpoint's state does not fit this job: ${problem}. Resume from an earlier one with --older-checkpoint, or start a new run in another folder.`,
  );
}
