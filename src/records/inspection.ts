/** The records that the inspector shows: steps, plans, memory samples and incidents. */

import type { LabelBytes, StepPlanReport } from "./plan.js";

/** The columns of the step log, in file order. Every column is a float64. */
export const stepColumns = [
  /** Counted from 1 over the whole run. */
  "step",
  /** Milliseconds since 1970 when the step's call returned. The device may not have run the step yet. */
  "time",
  /** NaN if unknown. */
  "loss",
  "lr",
  /** Counted from 0. */
  "fold",
  "epoch",
  /** Rows of the batch. */
  "samples",
  /** Duration of the step's call on the host, in milliseconds. */
  "hostMs",
] as const;

export type StepColumn = (typeof stepColumns)[number];

/** A plan of a compiled step. A later record of the same plan replaces this one; it may add measured times. */
export interface PlanRecord extends StepPlanReport {
  /** ISO 8601. */
  readonly at: string;
  /** The last step before this record. */
  readonly step: number;
}

/** Memory use at one time. Recorded for every plan, after every epoch, and every few seconds. */
export interface MemorySample {
  /** Milliseconds since 1970. */
  readonly time: number;
  readonly step: number;
  readonly limit: number;
  readonly used: number;
  readonly holders: readonly LabelBytes[];
  readonly arena: {
    readonly capacity: number;
    readonly committed: number;
    readonly highWater: number;
    readonly live: number;
    readonly pins: number;
    readonly pinnedBytes: number;
    readonly resets: number;
  };
}

export const incidentKinds = [
  "stall",
  "capture rejected",
  "over budget",
  "steps not finite",
  "failure",
] as const;

export type IncidentKind = (typeof incidentKinds)[number];

/** A stall, a failure or another event that a user should look at. */
export interface IncidentRecord {
  readonly kind: IncidentKind;
  readonly time: number;
  readonly step: number;
  /** One line. */
  readonly message: string;
  /** Further lines: a stall report, a table of holders. */
  readonly details?: string | undefined;
  /** The phases before the incident, oldest first. */
  readonly phases: readonly string[];
}
