/**
 * A snapshot of the shared memories as plain JSON. It is sent with every heartbeat, so that the outside process can
 * report the run's activity when the process no longer answers.
 */

import type { DriverCall } from "../../../driver/index.js";
import type { LabelTable } from "../label-table.js";
import { phaseTitle } from "../phases.js";
import type { RecordedEvent, Recorder } from "../recorder.js";
import type { ArenaFigure, BudgetLabel, PhaseName, SharedStatus } from "../shared-status.js";
import type { Activity } from "./stall.js";

const maxEvents = 32;

export interface OpenPhase {
  readonly title: string;
  readonly phase: PhaseName;
  /** The step's number; 0 if the phase has none. */
  readonly number: number;
  readonly openMs: number;
}

export interface OpenCall {
  readonly call: DriverCall;
  readonly openMs: number;
}

export interface Reading {
  readonly step: number;
  /** The current op; null if there is none. */
  readonly op: string | null;
  /** The open phases, outermost first. */
  readonly phases: readonly OpenPhase[];
  readonly call: OpenCall | null;
  /** Time without progress. */
  readonly stillMs: number;
  readonly budget: { readonly limit: number; readonly used: Readonly<Record<BudgetLabel, number>> };
  readonly arena: Readonly<Record<ArenaFigure, number>>;
  /** The last events, oldest first. */
  readonly events: readonly RecordedEvent[];
}

/** The memories that the engine shares with its watchers. */
export interface SharedMemory {
  readonly sharedStatus: SharedStatus;
  readonly labels: LabelTable;
  readonly recorder: Recorder;
}

export function takeReading({ sharedStatus, labels, recorder }: SharedMemory, activity: Activity): Reading {
  const { call, phases, op, step, stillMs, checkedMs } = activity;
  return {
    step,
    op: op === 0 ? null : labels.textOf(op),
    phases: phases.map(({ phase, number, enteredMs }) => ({
      title: phaseTitle(phase, number),
      phase,
      number,
      openMs: checkedMs - enteredMs,
    })),
    call: call ? { call: call.call, openMs: checkedMs - call.enteredMs } : null,
    stillMs,
    budget: { limit: sharedStatus.budgetLimit, used: sharedStatus.readBudget() },
    arena: sharedStatus.readArena(),
    events: recorder.recent(maxEvents),
  };
}
