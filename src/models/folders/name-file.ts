/** Errors about the contents of a file name the file. */

import { HoldfastError } from "../../errors/index.js";

/** Runs a function. An error gets the path of a file before its message. */
export function nameFile<Result>(path: string, run: () => Result): Result {
  try {
    return run();
  } catch (cause) {
    if (!(cause instanceof HoldfastError)) throw cause;
    const { code, message, numbers } = cause;
    throw new HoldfastError(code, `${path}: ${message}`, { numbers: { ...numbers, path }, cause });
  }
}
