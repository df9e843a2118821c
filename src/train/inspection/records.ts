/**
 * What a run leaves behind for those who look at it later: the files beside its metrics, and the records in them. Written while
 * the run goes on, so a reader may find the last record half written; it leaves that one out.
 */

import type { StepPlanReport } from "../../tensor/index.js";

/** Their names in the run's folder. */
export const inspectionFiles = {
  /** Numbers of every step, in binary: see `step-log.ts`. */
  steps: "steps.bin",
  /** One `PlanRecord` a line. */
  plans: "plans.jsonl",
  /** One `MemorySample` a line. */
  memory: "memory.jsonl",
  /** One `TroubleRecord` a line. */
  trouble: "trouble.jsonl",
} as const;

/** The columns of the step log, in their order; every one is a float64. */
export const stepColumns = [
  /** Counted over the whole run, from 1. */
  "step",
  /** Milliseconds since 1970, when its call came back: it was sent then, and may not have run yet. */
  "time",
  /** NaN where it is not known. */
  "loss",
  "lr",
  /** Counted from 0. */
  "fold",
  "epoch",
  /** Rows of the batch. */
  "samples",
  /** The host's time for the step: from the call until it came back, in milliseconds. */
  "hostMs",
] as const;

export type StepColumn = (typeof stepColumns)[number];

/** A plan of a compiled step, as it was begun; with times, once they were measured: then the later record counts. */
export interface PlanRecord extends StepPlanReport {
  /** ISO 8601, and the run's step before which it was noted. */
  readonly at: string;
  readonly step: number;
}

/** Where memory stands now and then: at every plan, at every epoch's end, and once in some seconds. */
export interface MemorySample {
  /** Milliseconds since 1970. */
  readonly time: number;
  readonly step: number;
  readonly limit: number;
  readonly used: number;
  readonly holders: readonly { readonly label: string; readonly bytes: number }[];
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

export const troubleKinds = [
  "stall",
  "capture rejected",
  "over budget",
  "steps not finite",
  "failure",
] as const;

export interface TroubleRecord {
  readonly kind: (typeof troubleKinds)[number];
  readonly time: number;
  readonly step: number;
  /** One line. */
  readonly message: string;
  /** What was told besides: a stall report, a table of holders. */
  readonly details?: string | undefined;
  /** The phases up to it, oldest first, as the recorder told them. */
  readonly phases: readonly string[];
}
