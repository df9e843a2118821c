/** The rule of running statistics inside vmap: they are one tensor, and can't be those of each member. */

import { rejectMembers, type Tensor } from "../tensor/index.js";

/** Rejects an update of running statistics by tensors that differ between members. */
export function requireOwnStatistics(name: string, ...operands: readonly (Tensor | null)[]): void {
  rejectMembers(
    operands.filter((operand) => operand !== null),
    `${name} can't update running statistics`,
    "Call eval() of the module before, create it with trackRunningStats: false, or use GroupNorm.",
  );
}
