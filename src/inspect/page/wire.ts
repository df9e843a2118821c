/**
 * The server's answers, as types for the server and the page. Types only: the page runs in a browser and can load no module from
 * outside its folder.
 */

import type {
  IncidentRecord,
  JsonRecord,
  RankRecord,
  RunRecord,
  RunState,
  RunStatus,
  StepPlanReport,
} from "../../records/index.js";

export type {
  CallReport,
  IncidentRecord,
  JsonRecord,
  MemorySample,
  PlanMemory,
  PlannedTensor,
  PlanRecord,
  RunRecord,
  RunStatus,
  StageCall,
  StageReport,
  StepPhase,
} from "../../records/index.js";

/** A line of the list of runs. */
export interface RunLine {
  readonly name: string;
  /** The state in status.json; "failed" if the process died silently, "broken" if nothing can be read. */
  readonly state: RunState | "broken";
  readonly step: number | null;
  readonly of: number | null;
  readonly device: string | null;
  /** ISO 8601. */
  readonly started: string | null;
  readonly updated: string | null;
  /** True if the process is alive, or may be alive on another machine. */
  readonly isLive: boolean;
  /** The problem of the folder, in one line. */
  readonly note: string | null;
}

/** A run without its steps, its memory samples and the bodies of its plans. */
export interface RunDetail {
  readonly name: string;
  readonly run: RunRecord | null;
  readonly status: RunStatus | null;
  readonly results: JsonRecord | null;
  readonly metrics: readonly JsonRecord[];
  readonly plans: readonly PlanLine[];
  readonly incidents: readonly IncidentRecord[];
  readonly messages: readonly string[];
  /** The number of ranks of a distributed run; 0 for others. */
  readonly ranks: number;
}

/** The ranks of a run, in their order. */
export interface RankTable {
  readonly ranks: readonly RankLine[];
}

/** A rank. Times are those of the median step; null is unknown. */
export interface RankLine extends RankRecord {
  /** Its last step. */
  readonly steps: number;
  readonly stepMs: number | null;
  /** The time of a step outside of collectives. The rest is waiting for other ranks, and moving bytes. */
  readonly ownMs: number | null;
  /** The mean of a step, to all other ranks together. */
  readonly sentBytes: number | null;
  readonly collectives: number | null;
  /** True if the others wait for it. */
  readonly isSlow: boolean;
  readonly points: readonly RankPoint[];
}

/** Some steps in a row, up to `step`. */
export interface RankPoint {
  readonly step: number;
  /** Milliseconds since 1970, by the clock of rank 0. */
  readonly time: number;
  readonly stepMs: number;
  readonly ownMs: number | null;
}

export interface PlanLine {
  readonly index: number;
  readonly name: string;
  readonly inputs: string;
  readonly mode: NonNullable<StepPlanReport["mode"]> | null;
  readonly calls: number;
  readonly peak: number;
}

/** A column of the steps; null is an unknown number. */
export type Column = readonly (number | null)[];

/** The columns of a chart point. `notFinite` counts the rows without a finite loss. */
export type PointColumn =
  | "step"
  | "lossMin"
  | "lossMax"
  | "loss"
  | "lr"
  | "hostMs"
  | "time"
  | "samplesPerSecond"
  | "fold"
  | "epoch"
  | "notFinite";

/** The steps of a range of rows. A point has several rows if there are more rows than requested points. */
export interface StepTable {
  /** Rows in the log. */
  readonly rows: number;
  /** The range of rows that the points cover. */
  readonly from: number;
  readonly to: number;
  readonly columns: Readonly<Record<PointColumn, Column>>;
}
