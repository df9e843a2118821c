/**
 * A reading: what the shared memories say at one moment, as plain JSON. It goes out with every beat, so that the
 * outside process can still tell what the run was at when nobody inside answers any more.
 */

import type { DriverCall } from "../../../driver/index.js";
import type { LabelTable } from "../label-table.js";
import { phaseTitle } from "../phases.js";
import type { RecordedEvent, Recorder } from "../recorder.js";
import type { ArenaFigure, BudgetLabel, PhaseName, SharedStatus } from "../shared-status.js";
import type { Activity } from "./stall.js";

const eventsKept = 32;

export interface OpenPhase {
  readonly title: string;
  readonly phase: PhaseName;
  /** The step's number, 0 where the phase has none. */
  readonly number: number;
  readonly openMs: number;
}

export interface OpenCall {
  readonly call: DriverCall;
  readonly openMs: number;
}

export interface Reading {
  readonly step: number;
  /** The op at work, null where none is. */
  readonly op: string | null;
  /** The phases that have not ended, outermost first. */
  readonly phases: readonly OpenPhase[];
  readonly call: OpenCall | null;
  /** How long nothing has moved. */
  readonly stillMs: number;
  readonly budget: { readonly limit: number; readonly used: Readonly<Record<BudgetLabel, number>> };
  readonly arena: Readonly<Record<ArenaFigure, number>>;
  /** The last events, oldest first. */
  readonly events: readonly RecordedEvent[];
}

/** What the engine shares with its watchers. */
export interface Shared {
  readonly sharedStatus: SharedStatus;
  readonly labels: LabelTable;
  readonly recorder: Recorder;
}

export function takeReading({ sharedStatus, labels, recorder }: Shared, activity: Activity): Reading {
  const { call, phases, op, step, stillMs, lookedMs } = activity;
  return {
    step,
    op: op === 0 ? null : labels.textOf(op),
    phases: phases.map(({ phase, number, enteredMs }) => ({
      title: phaseTitle(phase, number),
      phase,
      number,
      openMs: lookedMs - enteredMs,
    })),
    call: call ? { call: call.call, openMs: lookedMs - call.enteredMs } : null,
    stillMs,
    budget: { limit: sharedStatus.budgetLimit, used: sharedStatus.readBudget() },
    arena: sharedStatus.readArena(),
    events: recorder.recent(eventsKept),
  };
}
