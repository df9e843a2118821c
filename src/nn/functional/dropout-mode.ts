/** Whether a call of dropout drops anything. */

import { HoldfastError } from "../../errors/index.js";

/** True if dropout changes its input. An object of options, as of other functions, would count as true. */
export function isActive(name: string, isTraining: boolean, p: number): boolean {
  if (typeof isTraining === "boolean") return isTraining && p !== 0;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${name}: isTraining is ${JSON.stringify(isTraining)}; pass true or false: ${name}(x, 0.5, this.isTraining).`,
  );
}
