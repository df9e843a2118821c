/** Says why an arena has no room: a pure judgement over its figures, so that "full" is never the whole answer. */

import { formatBytes } from "../units/index.js";

export type Verdict = "mis-sized" | "never reset" | "truly full";

export interface Pressure {
  readonly asked: number;
  /** What stands in the way: the arena's own capacity, or memory to grow inside it. */
  readonly obstacle: "capacity" | "memory";
  readonly capacity: number;
  /** Live bytes by what keeps them: a pin, the open step, or nothing but the missing reset. */
  readonly pinned: number;
  readonly madeThisStep: number;
  readonly leftOver: number;
  readonly resets: number;
  /** What the budget could still give. */
  readonly budgetLeft: number;
}

export interface Judgement {
  readonly verdict: Verdict;
  readonly why: string;
  readonly help: string;
}

export function judge(pressure: Pressure): Judgement {
  const { asked, obstacle, capacity, pinned, madeThisStep, leftOver, resets, budgetLeft } = pressure;
  const raise = "Raise HOLDFAST_ARENA (its memory is taken only as it is used).";
  if (asked > capacity) {
    return {
      verdict: "mis-sized",
      why: `the request alone is larger than the arena: ${formatBytes(asked)} of ${formatBytes(capacity)}`,
      help: raise,
    };
  }
  if (leftOver > 0 && leftOver >= madeThisStep && leftOver >= pinned) {
    return {
      verdict: "never reset",
      why:
        `${formatBytes(leftOver)} was made outside any step and nothing has ended it ` +
        `(${resets === 0 ? "the arena was never reset" : `${resets} resets so far`})`,
      help: "Run each batch inside runtime.step(), whose end resets the arena, or reset it between batches.",
    };
  }
  if (budgetLeft >= asked && obstacle === "capacity") {
    return {
      verdict: "mis-sized",
      why: `more than ${formatBytes(capacity)} is needed at once, and the budget still has ${formatBytes(budgetLeft)}`,
      help: raise,
    };
  }
  if (budgetLeft >= asked) {
    return {
      verdict: "truly full",
      why: `the device has no more to give, although the budget still has ${formatBytes(budgetLeft)}`,
      help: "End what else uses this device, or lower HOLDFAST_MEMORY so that the refusal comes before the device's.",
    };
  }
  const isPinned = pinned > madeThisStep;
  return {
    verdict: "truly full",
    why:
      `${isPinned ? "pins hold" : "this step holds"} ${formatBytes(isPinned ? pinned : madeThisStep)}, ` +
      `and the budget has ${formatBytes(budgetLeft)} left`,
    help: isPinned ? "Unpin what is no longer needed." : "Use a smaller batch, or raise HOLDFAST_MEMORY.",
  };
}
