/** Checks of what runs save in checkpoints: positions, records of epochs, and sizes of logs. */

import { fits, listOf, optional, recordOf } from "./files/json-shapes.js";

const wholeNumber = fits(
  (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  "a whole number, 0 or more",
);
/** NaN and the infinities are valid. */
const figure = fits((value) => typeof value === "number", "a number");

/** A `TrainerPosition`. */
export const positionShape = recordOf({
  ...{ epoch: wholeNumber, batch: wholeNumber, step: wholeNumber, losses: listOf(figure) },
  ...{ skipped: optional(wholeNumber), skippedInEpoch: optional(wholeNumber) },
});

/** An `EpochRecord`. */
export const epochShape = recordOf({
  ...{
    epoch: wholeNumber,
    steps: wholeNumber,
    loss: figure,
    lr: figure,
    seconds: figure,
    skipped: wholeNumber,
  },
  ...{ samplesPerSecond: optional(figure), figures: recordOf({}) },
});

/** The `LogSizes` of a run. */
export const logSizesShape = fits(
  (value) => Object.values(value ?? {}).every((size) => Number.isSafeInteger(size) && Number(size) >= 0),
  "a record of sizes",
);
