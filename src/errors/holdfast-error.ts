/** The error class: a code from the closed list, the figures in the message, and the cause. */

import type { ErrorCode } from "./codes.js";

export type ErrorNumbers = Readonly<Record<string, number | string | boolean | null>>;

export interface ErrorContext {
  /** The figures in the message, for programs. */
  readonly numbers?: ErrorNumbers;
  readonly cause?: unknown;
}

/**
 * Every error that Holdfast throws on purpose. `code` is stable. The message says what was asked, what there was, and
 * what to change.
 *
 * @example
 * ```ts
 * import { HoldfastError, parseBytes } from "holdfast";
 * try {
 *   parseBytes("much");
 * } catch (error) {
 *   if (error instanceof HoldfastError) console.log(error.code); // → BAD_SIZE
 * }
 * ```
 */
export class HoldfastError extends Error {
  readonly code: ErrorCode;
  readonly numbers: ErrorNumbers;

  constructor(code: ErrorCode, message: string, context: ErrorContext = {}) {
    super(message, context.cause === undefined ? undefined : { cause: context.cause });
    this.name = `HoldfastError [${code}]`;
    this.code = code;
    this.numbers = context.numbers ?? {};
  }
}
