/** Backward passes in a step of several ranks: the gradients of parameters go to an exchange, and from there to the parameters. */

import type { Leaf, Value } from "../autograd/index.js";

export interface GradientExchange {
  /** Called before a pass that reaches these leaves. Undefined: this pass exchanges nothing. */
  begin(leaves: readonly Leaf[]): GradientDelivery | undefined;
}

/** Of one pass. Leaves without a receiver accumulate their gradients. */
export interface GradientDelivery {
  /** Each takes a gradient as soon as it is complete. */
  readonly receivers: ReadonlyMap<Leaf, (gradient: Value) => void>;
  /** Called after the pass: gives the parameters their gradients. */
  finish(): void;
}
