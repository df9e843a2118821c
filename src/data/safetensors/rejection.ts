/** How a file is rejected: what was found, the figures, and what to do. Names from a file are quoted and cut. */

import { type ErrorNumbers, HoldfastError } from "../../errors/index.js";

const quotedLength = 60;

export function badFile(found: string, numbers: ErrorNumbers = {}, cause?: unknown): HoldfastError {
  const message = `${found} The file is truncated, altered or of another format: make or fetch it again.`;
  return new HoldfastError("BAD_FILE", message, { numbers, cause });
}

/** Rejects one tensor of a sound file; the others can be read. */
export function rejectTensor(name: string, found: string, numbers: ErrorNumbers = {}): HoldfastError {
  const message = `${found} Leave it out with the option skip, or convert it with the program that wrote the file.`;
  return new HoldfastError("BAD_DTYPE", message, { numbers: { name: quote(name), ...numbers } });
}

/** A name as it may stand in a message: no control characters, and not as long as a hostile header could make it. */
export function quote(text: string): string {
  return JSON.stringify(text.length <= quotedLength ? text : `${text.slice(0, quotedLength)}…`);
}
