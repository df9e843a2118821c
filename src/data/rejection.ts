/** Errors about files of data: the file, the problem, and advice. Text from a file is quoted and truncated. */

import { type ErrorNumbers, HoldfastError } from "../errors/index.js";

const maxQuotedLength = 60;

export function badData(
  file: string,
  problem: string,
  advice: string,
  numbers: ErrorNumbers = {},
  cause?: unknown,
): HoldfastError {
  return new HoldfastError("BAD_FILE", `${file}: ${problem} ${advice}`, {
    numbers: { file, ...numbers },
    cause,
  });
}

/** Wraps an error of the system or of the format. A HoldfastError is returned unchanged. */
export function wrapFault(file: string, problem: string, cause: unknown, advice: string): HoldfastError {
  if (cause instanceof HoldfastError) return cause;
  const why = cause instanceof Error ? cause.message : String(cause);
  return badData(file, `${problem}: ${quote(why)}.`, advice, {}, cause);
}

/** A cell or a name for a message: without control characters, and truncated. */
export function quote(value: unknown): string {
  const text = typeof value === "string" ? value : String(value);
  const shown = text.length <= maxQuotedLength ? text : `${text.slice(0, maxQuotedLength)}…`;
  return typeof value === "string" ? JSON.stringify(shown) : shown;
}
