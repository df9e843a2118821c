/** The state of a training in a checkpoint, in addition to the settings. A checksum proves that a file is whole, not who wrote it: all of it is checked. */

import { HoldfastError } from "../errors/index.js";
import type { JsonRecord } from "../records/index.js";
import {
  type EpochRecord,
  epochShape,
  jsonShapes,
  type LogSizes,
  logSizesShape,
  positionShape,
  type TrainerPosition,
} from "../train/index.js";
import type { Evaluation } from "./events.js";

export interface SavedState {
  readonly position: TrainerPosition;
  /** The completed epochs. */
  readonly epochs: readonly EpochRecord[];
  readonly evaluations: readonly Evaluation[];
  /** The step of the last samples; −1 before the first. */
  readonly sampledStep: number;
  /** The sizes of the run's logs. */
  readonly logs?: LogSizes | undefined;
}

const { fits, listOf, optional, recordOf } = jsonShapes;

const wholeNumber = fits(
  (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  "a whole number, 0 or more",
);
const stepOrNone = fits(
  (value) => Number.isSafeInteger(value) && Number(value) >= -1,
  "a whole number, −1 or more",
);
/** NaN and the infinities are valid. */
const figure = fits((value) => typeof value === "number", "a number");
const shape = recordOf({
  position: positionShape,
  epochs: listOf(epochShape),
  evaluations: listOf(recordOf({ step: wholeNumber, loss: figure, perplexity: figure, tokens: wholeNumber })),
  sampledStep: stepOrNone,
  logs: optional(logSizesShape),
});

/** Returns a checkpoint's state as that of a training, or throws and names the first problem. */
export function readSavedState(state: JsonRecord, step: number): SavedState {
  const problem = shape(state, "it") ?? contradictionIn(state as unknown as SavedState, step);
  if (problem === undefined) return state as unknown as SavedState;
  throw new HoldfastError(
    "BAD_STATE",
    `The checkpoint's state does not fit this training: ${problem}. Resume from an earlier one with --older-checkpoint, or start a new run in another folder.`,
  );
}

function contradictionIn(
  { position, epochs, evaluations, sampledStep }: SavedState,
  step: number,
): string | undefined {
  if (position.step !== step) return `position.step is ${position.step}, but its step is ${step}`;
  if (epochs.length !== position.epoch || epochs.some((record, index) => record.epoch !== index))
    return `it has records of ${epochs.length} epochs, but position.epoch is ${position.epoch}, or they are out of order`;
  const later = Math.max(sampledStep, ...evaluations.map((evaluation) => evaluation.step));
  return later > step ? `it has figures of step ${later}, but its step is ${step}` : undefined;
}
