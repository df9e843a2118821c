/**
 * Handles errors of stdout: its reader is gone, as with `| head`, or its disk is full. Most commands end, because their output is
 * their purpose. Training continues without output.
 */

import { errorCode, fileError } from "../data/index.js";
import { exitCodes, toExitCode } from "../errors/index.js";

let isNeeded = true;
let isLost = false;

/** Installs error handlers on stdout and stderr for the life of the process. */
export function guardOutput(): void {
  process.stdout.on("error", lose);
  // There is no other stream to report it on.
  process.stderr.on("error", () => undefined);
}

/** Declares that this command continues if its output is lost. */
export function continueWithoutOutput(): void {
  isNeeded = false;
}

/** Writes to stdout, or does nothing if stdout is lost. */
export function print(text: string): void {
  if (!isLost) process.stdout.write(text);
}

function lose(error: Error): void {
  if (isLost) return;
  isLost = true;
  if (!isNeeded) {
    console.error(
      `holdfast: stdout can't be written (${errorCode(error) ?? error.message}). Training continues without output; holdfast health shows its state.`,
    );
    return;
  }
  // The reader, such as `head`, has closed the pipe on purpose.
  if (errorCode(error) === "EPIPE") process.exit(exitCodes.ok.code);
  const failure = fileError("stdout can't be written", "stdout", error);
  console.error(`holdfast: ${failure.code}: ${failure.message}`);
  process.exit(toExitCode(failure));
}
