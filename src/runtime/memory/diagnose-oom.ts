/** Diagnoses an out-of-memory condition from the figures alone, so that the answer is never just "full". */

import { formatBytes } from "../../units/index.js";

/** Why a request does not fit in the arena. */
export type OomCause = "mis-sized" | "never reset" | "truly full";

/** A request that does not fit, and the obstacle: the arena's capacity, the budget's limit, or memory to grow into. */
export interface OutOfMemory {
  readonly requested: number;
  readonly obstacle: "arena" | "budget" | "memory";
}

export interface OomFigures extends OutOfMemory {
  readonly capacity: number;
  readonly limit: number;
  /** The arena's live bytes, by the reason that keeps them alive: a pin, the open step, or a missing reset. */
  readonly pinned: number;
  readonly allocatedThisStep: number;
  readonly leftOver: number;
  readonly resets: number;
  /** Bytes that the budget can still provide. */
  readonly budgetLeft: number;
}

export interface OomDiagnosis {
  readonly cause: OomCause;
  readonly why: string;
  readonly help: string;
}

const raiseArena = "Raise HOLDFAST_ARENA (its memory is committed only as it is used).";
const raiseBudget = "Raise HOLDFAST_MEMORY if the machine has more.";

export function diagnoseOom(figures: OomFigures): OomDiagnosis {
  const { requested, obstacle, capacity, limit, pinned, allocatedThisStep, leftOver, resets, budgetLeft } =
    figures;
  const [total, raise] = obstacle === "budget" ? [limit, raiseBudget] : [capacity, raiseArena];
  if (requested > total) {
    const what = obstacle === "budget" ? "budget" : "arena";
    return {
      cause: "mis-sized",
      why: `the request alone exceeds the whole ${what}: ${formatBytes(requested)} of ${formatBytes(total)}`,
      help: raise,
    };
  }
  if (leftOver > 0 && leftOver >= allocatedThisStep && leftOver >= pinned) {
    return {
      cause: "never reset",
      why:
        `${formatBytes(leftOver)} was allocated outside any step and never freed ` +
        `(${resets === 0 ? "the arena was never reset" : `${resets} resets so far`})`,
      help: "Run each batch inside step(), whose end resets the arena.",
    };
  }
  if (obstacle === "arena" && budgetLeft >= requested) {
    return {
      cause: "mis-sized",
      why: `more than ${formatBytes(capacity)} is needed at once, and the budget still has ${formatBytes(budgetLeft)}`,
      help: raise,
    };
  }
  return { cause: "truly full", ...describeFull(figures) };
}

function describeFull({
  requested,
  limit,
  pinned,
  allocatedThisStep,
  budgetLeft,
}: OomFigures): Omit<OomDiagnosis, "cause"> {
  if (budgetLeft >= requested) {
    return {
      why: `the device has no more memory, although the budget still has ${formatBytes(budgetLeft)}`,
      help: "End other programs that use this device, or lower HOLDFAST_MEMORY to stay below the device's limit.",
    };
  }
  const left = `and the budget has ${formatBytes(budgetLeft)} left of ${formatBytes(limit)}`;
  const outsideStep = limit - budgetLeft - pinned - allocatedThisStep;
  if (pinned > allocatedThisStep && pinned >= outsideStep) {
    return {
      why: `pins hold ${formatBytes(pinned)}, ${left}`,
      help: "Unpin storages that are no longer needed.",
    };
  }
  if (allocatedThisStep >= outsideStep) {
    const help = `Use a smaller batch. ${raiseBudget}`;
    return { why: `this step holds ${formatBytes(allocatedThisStep)}, ${left}`, help };
  }
  const help = `See the holders: keep fewer tensors, or use a smaller batch. ${raiseBudget}`;
  return { why: `memory held outside the step takes ${formatBytes(outsideStep)}, ${left}`, help };
}
