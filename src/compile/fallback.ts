/**
 * What becomes of a plan that the verifier rejects. A rejection is a fault of Holdfast and must not stop the user's program.
 * Passes are left out, from the last one back, until the verifier agrees. The user is warned, and a report is written.
 */

import { HoldfastError } from "../errors/index.js";
import type { Runtime } from "../runtime/index.js";
import type { PassName, Stage } from "./compile.js";
import { warnOfRejection } from "./report/rejection-report.js";

/** What can be left out, in the order in which it is applied. */
export type Optional = PassName | "pdl";

/** What a step is planned from. */
export interface Proposed {
  /** The trace, then what each pass has made of it. */
  readonly stages: readonly Stage[];
  /** May launches begin while the ones before them end? */
  readonly usesPdl: boolean;
}

export interface Fallback {
  /** In their order: without the first one the verifier agreed, so that one is the likely cause. */
  readonly leftOut: readonly Optional[];
  /** Why the verifier rejected the plan with all of them. */
  readonly rejection: HoldfastError;
  /** Where the report lies, or why there is none. */
  readonly report: string;
}

interface Agreed<T> extends Proposed {
  readonly planned: T;
  /** Nothing where the verifier agreed at once. */
  readonly fallback: Fallback | undefined;
}

/** Plans with as many passes as the verifier agrees to. Where it rejects even the traced calls, its first rejection is thrown. */
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

/** Plans a schedule that a step can do without: nothing where the verifier rejects it, and a warning. */
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

/** The same with less and less: first without handovers, then without the last pass, the last two, and so on. */
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
    // A pass that changed nothing can't be the cause.
    if (last.calls !== before.calls) yield { stages: stages.slice(0, count), usesPdl: false, leftOut };
  }
}

const callsOf = ({ stages }: Proposed): Stage["calls"] => stages.at(-1)?.calls ?? [];
