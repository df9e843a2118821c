/**
 * What becomes of a plan that the verifier refuses. A refusal is a fault of Holdfast and must not stop the user's program.
 * Passes are left out, from the last one back, until the verifier agrees. The user is warned, and a report is written.
 */

import { HoldfastError } from "../errors/index.js";
import type { Runtime } from "../runtime/index.js";
import type { PassName, Stage } from "./compile.js";
import { warnOfRefusal } from "./report/rejection-report.js";

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
  /** Why the verifier refused the plan with all of them. */
  readonly refusal: HoldfastError;
  /** Where the report lies, or why there is none. */
  readonly report: string;
}

interface Agreed<T> extends Proposed {
  readonly planned: T;
  /** Nothing where the verifier agreed at once. */
  readonly fallback: Fallback | undefined;
}

/** Plans with as many passes as the verifier agrees to. Where it refuses even the traced calls, its first refusal is thrown. */
export function planAgreed<T>(
  runtime: Runtime,
  name: string,
  proposed: Proposed,
  plan: (proposed: Proposed) => T,
): Agreed<T> {
  const first = tryPlan(proposed, plan);
  if (!("refusal" in first)) return { ...proposed, ...first, fallback: undefined };
  const { refusal } = first;
  if (runtime.settings.onRefusedPlan === "error") throw refusal;
  for (const { leftOut, ...shorter } of shorterOf(proposed)) {
    const next = tryPlan(shorter, plan);
    if ("refusal" in next) continue;
    const report = warnOfRefusal(runtime, { name, refusal, calls: callsOf(proposed), leftOut });
    return { ...shorter, ...next, fallback: { leftOut, refusal, report } };
  }
  throw refusal;
}

/** Plans a schedule that a step can do without: nothing where the verifier refuses it, and a warning. */
export function planOptional<T>(
  runtime: Runtime,
  { name, schedule, calls }: { name: string; schedule: string; calls: Stage["calls"] },
  plan: () => T,
): T | undefined {
  const tried = tryPlan(undefined, plan);
  if (!("refusal" in tried)) return tried.planned;
  const { refusal } = tried;
  if (runtime.settings.onRefusedPlan === "error") throw refusal;
  warnOfRefusal(runtime, { name, refusal, calls, schedule, leftOut: [] });
  return undefined;
}

function tryPlan<P, T>(
  proposed: P,
  plan: (proposed: P) => T,
): { readonly planned: T } | { readonly refusal: HoldfastError } {
  try {
    return { planned: plan(proposed) };
  } catch (error) {
    if (error instanceof HoldfastError && error.code === "PLAN_REFUSED") return { refusal: error };
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
