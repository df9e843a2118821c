/** Errors about files: the problem, the figures, and what to do. Names from a file are quoted and shortened. */

import { type ErrorNumbers, HoldfastError } from "../../errors/index.js";

/** Characters of a name that a message shows. */
export const quotedLength = 60;

export function badFile(problem: string, numbers: ErrorNumbers = {}, cause?: unknown): HoldfastError {
  const message = `${problem} The file is truncated, altered or of another format: create or download it again.`;
  return new HoldfastError("BAD_FILE", message, { numbers, cause });
}

/** Rejects one tensor of a valid file; the others can be read. */
export function rejectTensor(name: string, problem: string, numbers: ErrorNumbers = {}): HoldfastError {
  const message = `${problem} Leave it out with the option skip, or convert it with the program that wrote the file.`;
  return new HoldfastError("BAD_DTYPE", message, { numbers: { name: quote(name), ...numbers } });
}

/** A name for messages: without control characters, and shortened. */
export function quote(text: string): string {
  return JSON.stringify(text.length <= quotedLength ? text : `${text.slice(0, quotedLength)}…`);
}
