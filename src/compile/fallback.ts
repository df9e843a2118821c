/**
 * Falls back to fewer phases if the verifier rejects a plan. A rejection is a bug in Holdfast and must not stop the
 * user's program. Phases are left out, from the last one back, until the verifier accepts. The user is warned, and a
 * report is written.
 */

import { HoldfastError } from "../errors/index.js";
import type { Runtime } from "../runtime/index.js";
import type { PhaseName, Stage } from "./pipeline.js";
import { warnOfRejection } from "./report/rejection-report.js";

/** A phase or feature that a fallback can leave out. */
export type Optional = PhaseName | "pdl";

/** The program and the options that a step is planned from. */
export interface Proposed {
  /** The trace, then the program after each phase. */
  readonly stages: readonly Stage[];
  /** True if launches may use programmatic dependent launch. */
  readonly usesPdl: boolean;
}

export interface Fallback {
  /** In pipeline order. The verifier accepted the plan without the first one, which is therefore the likely cause. */
  readonly leftOut: readonly Optional[];
  /** Why the verifier rejected the plan with all of them. */
  readonly rejection: HoldfastError;
  /** The path of the report, or why there is none. */
  readonly report: string;
}

interface Agreed<T> extends Proposed {
  readonly planned: T;
  /** Undefined if the verifier accepted the first plan. */
  readonly fallback: Fallback | undefined;
}

/** Plans with as many phases as the verifier accepts. If it rejects even the traced calls, throws the first rejection. */
export function planAgreed<T>(
  runtime: Runtime,
  name: string,
  proposed: Proposed,
  plan: (proposed: Proposed) => T,
): Agreed<T> {
  const first = tryPlan(proposed, plan);
  if (!("rejection" in first)) return { ...proposed, ...first, fallback: undefined };
  const { rejection } = first;
  if (runtime.settings.onRejectedPlan === "error") throw rejection;
  for (const { leftOut, ...shorter } of shorterOf(proposed)) {
    const next = tryPlan(shorter, plan);
    if ("rejection" in next) continue;
    const report = warnOfRejection(runtime, { name, rejection, calls: callsOf(proposed), leftOut });
    return { ...shorter, ...next, fallback: { leftOut, rejection, report } };
  }
  throw rejection;
}

/** Plans an optional schedule: undefined, with a warning, if the verifier rejects it. */
export function planOptional<T>(
  runtime: Runtime,
  { name, schedule, calls }: { name: string; schedule: string; calls: Stage["calls"] },
  plan: () => T,
): T | undefined {
  const tried = tryPlan(undefined, plan);
  if (!("rejection" in tried)) return tried.planned;
  const { rejection } = tried;
  if (runtime.settings.onRejectedPlan === "error") throw rejection;
  warnOfRejection(runtime, { name, rejection, calls, schedule, leftOut: [] });
  return undefined;
}

function tryPlan<P, T>(
  proposed: P,
  plan: (proposed: P) => T,
): { readonly planned: T } | { readonly rejection: HoldfastError } {
  try {
    return { planned: plan(proposed) };
  } catch (error) {
    if (error instanceof HoldfastError && error.code === "PLAN_REJECTED") return { rejection: error };
    throw error;
  }
}

/** Ever shorter pipelines: first without PDL, then without the last phase, the last two, and so on. */
function* shorterOf({
  stages,
  usesPdl,
}: Proposed): Generator<Proposed & { readonly leftOut: readonly Optional[] }> {
  let leftOut: readonly Optional[] = [];
  if (usesPdl) {
    leftOut = ["pdl"];
    yield { stages, usesPdl: false, leftOut };
  }
  for (let count = stages.length - 1; count > 0; count--) {
    const [before, last] = stages.slice(count - 1);
    if (!before || !last || last.name === "trace") continue;
    leftOut = [last.name, ...leftOut];
    // A phase that changed nothing cannot be the cause.
    if (last.calls !== before.calls) yield { stages: stages.slice(0, count), usesPdl: false, leftOut };
  }
}

const callsOf = ({ stages }: Proposed): Stage["calls"] => stages.at(-1)?.calls ?? [];
