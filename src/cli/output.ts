/**
 * What happens when stdout can't be written any more: its reader is gone, as with `| head`, or its disk is full. Most commands are
 * there for their output and end. A training goes on without it.
 */

import { errorCode, fileError } from "../data/index.js";
import { exitCodes, toExitCode } from "../errors/index.js";

let isNeeded = true;
let isLost = false;

/** Takes care of errors of stdout and stderr, for as long as the process lives. */
export function guardOutput(): void {
  process.stdout.on("error", lose);
  // There is nowhere left to tell it.
  process.stderr.on("error", () => undefined);
}

/** Says that this command goes on where its output is lost. */
export function goOnWithoutOutput(): void {
  isNeeded = false;
}

/** Writes to stdout, or does nothing where that is lost. */
export function print(text: string): void {
  if (!isLost) process.stdout.write(text);
}

function lose(error: Error): void {
  if (isLost) return;
  isLost = true;
  if (!isNeeded) {
    console.error(
      `holdfast: stdout can't be written (${errorCode(error) ?? error.message}). The training continues without output; holdfast health shows its state.`,
    );
    return;
  }
  // The reader has seen enough, as `head` has.
  if (errorCode(error) === "EPIPE") process.exit(exitCodes.ok.code);
  const failure = fileError("stdout can't be written", "stdout", error);
  console.error(`holdfast: ${failure.code}: ${failure.message}`);
  process.exit(toExitCode(failure));
}
