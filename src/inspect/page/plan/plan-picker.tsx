/** A run's plans: the selection, and the selected plan. */

import { useState } from "preact/hooks";
import { runPath, useFetched } from "../server.js";
import { formatBytes, formatCount } from "../tables/format.js";
import type { PlanLine, PlanRecord, RunDetail } from "../wire.js";

export interface ChosenPlan {
  readonly plan: PlanRecord | undefined;
  readonly line: PlanLine | undefined;
  /** Why the plan is missing; undefined if it is loaded. */
  readonly missing: string | undefined;
  readonly choose: (index: number) => void;
}

export function usePlan({ name, plans }: RunDetail, version: number): ChosenPlan {
  const [chosen, choose] = useState<number | undefined>(undefined);
  const line = plans.find(({ index }) => index === chosen) ?? largestOf(plans);
  const path = line && runPath(name, `/plans/${line.index}`);
  const { answer, rejection } = useFetched<PlanRecord>(path, version);
  const missing = line
    ? (rejection ?? (answer ? undefined : "Loading the plan…"))
    : "No plan yet: plans are recorded when a step is compiled. Runs without compiled steps have none.";
  return { plan: answer, line, missing, choose };
}

/** The plan with the most calls: the training step. */
function largestOf(plans: readonly PlanLine[]): PlanLine | undefined {
  return [...plans].sort((a, b) => b.calls - a.calls)[0];
}

export function PlanPicker({ detail, chosen }: { readonly detail: RunDetail; readonly chosen: ChosenPlan }) {
  if (detail.plans.length === 0 || !chosen.line) return null;
  return (
    <label class="plan-picker">
      Plan
      <select
        value={chosen.line.index}
        onChange={({ currentTarget: { value } }) => chosen.choose(Number(value))}
      >
        {detail.plans.map(({ index, name, inputs, mode, calls, peak }) => (
          <option key={index} value={index}>
            {name} · {inputs} · {formatCount(calls)} calls · {formatBytes(peak)} · {mode ?? "not run yet"}
          </option>
        ))}
      </select>
    </label>
  );
}
