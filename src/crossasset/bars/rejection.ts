/** How a file of bars is rejected: the file, what was found there, and what to do. Text from a file is quoted and cut. */

import { type ErrorNumbers, HoldfastError } from "../../errors/index.js";

const quotedLength = 60;

export function badBars(
  file: string,
  found: string,
  advice: string,
  numbers: ErrorNumbers = {},
  cause?: unknown,
): HoldfastError {
  return new HoldfastError("BAD_FILE", `${file}: ${found} ${advice}`, {
    numbers: { file, ...numbers },
    cause,
  });
}

/** What can't be read or written for a reason of the system's or of the format's; rejections of our own stay as they are. */
export function wrapFault(file: string, what: string, cause: unknown, advice: string): HoldfastError {
  if (cause instanceof HoldfastError) return cause;
  const why = cause instanceof Error ? cause.message : String(cause);
  return badBars(file, `${what}: ${quote(why)}.`, advice, {}, cause);
}

/** A cell or a name as it may stand in a message: no control characters, and not as long as a hostile file could make it. */
export function quote(value: unknown): string {
  const text = typeof value === "string" ? value : String(value);
  const shown = text.length <= quotedLength ? text : `${text.slice(0, quotedLength)}…`;
  return typeof value === "string" ? JSON.stringify(shown) : shown;
}
