/**
 * The server's answers, as types for the server and the page. Types only: the page runs in a browser and can load no module from
 * outside its folder.
 */

import type {
  IncidentRecord,
  JsonRecord,
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
