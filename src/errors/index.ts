/** errors: the closed list of codes, the one class that carries them, and the exit codes. */

export { type ErrorCode, errorCodes } from "./codes.js";
export { type ExitName, exitCodeOf, exitCodes, exitOf } from "./exit-codes.js";
export { type ErrorContext, type ErrorNumbers, HoldfastError } from "./holdfast-error.js";
