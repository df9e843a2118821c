/** autograd: functions that differentiate, with PyTorch's names. */

export { CustomFunction as Function, type FunctionDefinition } from "./function.js";
export { FunctionContext } from "./function-context.js";
export * as functional from "./functional/index.js";
export { backward, type GradOptions, grad } from "./grad.js";
export { type GradcheckOptions, gradcheck, gradgradcheck } from "./gradcheck.js";
