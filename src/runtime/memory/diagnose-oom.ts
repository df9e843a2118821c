/** Says why there is no room: a pure judgement over the figures, so that "full" is never the whole answer. */

import { formatBytes } from "../../units/index.js";

export type Verdict = "mis-sized" | "never reset" | "truly full";

/** A request, and what stands in its way: the arena's capacity, the budget's limit, or memory to grow into. */
export interface OutOfMemory {
  readonly asked: number;
  readonly obstacle: "arena" | "budget" | "memory";
}

export interface Pressure extends OutOfMemory {
  readonly capacity: number;
  readonly limit: number;
  /** The arena's live bytes by what keeps them: a pin, the open step, or nothing but the missing reset. */
  readonly pinned: number;
  readonly madeThisStep: number;
  readonly leftOver: number;
  readonly resets: number;
  /** What the budget could still give. */
  readonly budgetLeft: number;
}

export interface OomDiagnosis {
  readonly verdict: Verdict;
  readonly why: string;
  readonly help: string;
}

const raiseArena = "Raise HOLDFAST_ARENA (its memory is taken only as it is used).";
const raiseBudget = "Raise HOLDFAST_MEMORY if the machine has more.";

export function diagnoseOom(pressure: Pressure): OomDiagnosis {
  const { asked, obstacle, capacity, limit, pinned, madeThisStep, leftOver, resets, budgetLeft } = pressure;
  const [whole, raise] = obstacle === "budget" ? [limit, raiseBudget] : [capacity, raiseArena];
  if (asked > whole) {
    const what = obstacle === "budget" ? "budget" : "arena";
    return {
      verdict: "mis-sized",
      why: `the request alone is larger than the whole ${what}: ${formatBytes(asked)} of ${formatBytes(whole)}`,
      help: raise,
    };
  }
  if (leftOver > 0 && leftOver >= madeThisStep && leftOver >= pinned) {
    return {
      verdict: "never reset",
      why:
        `${formatBytes(leftOver)} was made outside any step and nothing has ended it ` +
        `(${resets === 0 ? "the arena was never reset" : `${resets} resets so far`})`,
      help: "Run each batch inside step(), whose end resets the arena.",
    };
  }
  if (obstacle === "arena" && budgetLeft >= asked) {
    return {
      verdict: "mis-sized",
      why: `more than ${formatBytes(capacity)} is needed at once, and the budget still has ${formatBytes(budgetLeft)}`,
      help: raise,
    };
  }
  return { verdict: "truly full", ...whatFills(pressure) };
}

function whatFills({
  asked,
  limit,
  pinned,
  madeThisStep,
  budgetLeft,
}: Pressure): Omit<OomDiagnosis, "verdict"> {
  if (budgetLeft >= asked) {
    return {
      why: `the device has no more to give, although the budget still has ${formatBytes(budgetLeft)}`,
      help: "End what else uses this device, or lower HOLDFAST_MEMORY so that the rejection comes before the device's.",
    };
  }
  const left = `and the budget has ${formatBytes(budgetLeft)} left of ${formatBytes(limit)}`;
  const elsewhere = limit - budgetLeft - pinned - madeThisStep;
  if (pinned > madeThisStep && pinned >= elsewhere) {
    return { why: `pins hold ${formatBytes(pinned)}, ${left}`, help: "Unpin what is no longer needed." };
  }
  if (madeThisStep >= elsewhere) {
    const help = `Use a smaller batch. ${raiseBudget}`;
    return { why: `this step holds ${formatBytes(madeThisStep)}, ${left}`, help };
  }
  const help = `See the holders: hold less, or use a smaller batch. ${raiseBudget}`;
  return { why: `what is held outside the step takes ${formatBytes(elsewhere)}, ${left}`, help };
}
