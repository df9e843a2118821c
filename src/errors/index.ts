/** errors: the closed list of codes, the error class, and the exit codes. */

export { checkOptions, type OptionNames } from "./check-options.js";
export { type ErrorCode, errorCodes } from "./codes.js";
export { type ExitName, exitCodes, exitForCode, toExitCode } from "./exit-codes.js";
export { type ErrorContext, type ErrorNumbers, HoldfastError } from "./holdfast-error.js";
