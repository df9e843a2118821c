/**
 * What the server tells the page, as types. The page is compiled for browsers, by itself, so it can't read the types of the
 * layers that write these records; `wire.test.ts` holds them to be the same.
 */

/** A line of the list of runs. */
export interface RunLine {
  readonly name: string;
  readonly state: string;
  readonly step: number | null;
  readonly of: number | null;
  readonly device: string | null;
  readonly started: string | null;
  readonly updated: string | null;
  readonly isLive: boolean;
  /** What is wrong with the folder, in one line. */
  readonly note?: string | null;
}

/** run.json. */
export interface RunRecord {
  readonly settings: JsonRecord;
  readonly device: string;
  readonly holdfast: string;
  readonly node: string;
  readonly platform: string;
  readonly host: string;
  readonly started: string;
}

/** status.json. */
export interface RunStatus {
  readonly state: "running" | "finished" | "stopped" | "diverged" | "failed";
  readonly step: number;
  readonly of?: number | undefined;
  readonly epoch?: number | undefined;
  readonly fold?: number | undefined;
  readonly updated: string;
  readonly progressed: string;
  readonly reason?: string | undefined;
  readonly exitCode?: number | undefined;
  readonly figures?: { readonly samplesPerSecond?: number | undefined } | undefined;
}

export type JsonRecord = Readonly<Record<string, unknown>>;

export interface PlanLine {
  readonly index: number;
  readonly name: string;
  readonly inputs: string;
  readonly mode: "graph" | "direct" | null;
  readonly calls: number;
  readonly peak: number;
}

/** All of a run but its steps, its plans and its memory. */
export interface RunDetail {
  readonly name: string;
  readonly run?: RunRecord | null;
  readonly status?: RunStatus | null;
  readonly results?: JsonRecord | null;
  readonly metrics: readonly JsonRecord[];
  readonly plans: readonly PlanLine[];
  readonly trouble: readonly TroubleRecord[];
  readonly messages: readonly string[];
}

/** A column of the steps: null is a number that isn't known. */
export type Column = readonly (number | null)[];

export const stepColumnNames = [
  "step",
  "lossMin",
  "lossMax",
  "loss",
  "notFinite",
  "lr",
  "hostMs",
  "time",
  "samplesPerSecond",
  "fold",
  "epoch",
] as const;

/** Steps of a range of rows, no more than were asked for: each point stands for as many rows as it must. */
export interface StepTable {
  readonly rows: number;
  readonly from: number;
  readonly to: number;
  readonly columns: Readonly<Record<(typeof stepColumnNames)[number], Column>>;
}

export interface PlanRecord {
  readonly name: string;
  readonly inputs: string;
  readonly at: string;
  readonly step: number;
  readonly mode?: "graph" | "direct" | undefined;
  readonly isRejected: boolean;
  readonly reason?: string | undefined;
  readonly text: string;
  readonly stages: readonly StageRecord[];
  readonly calls: readonly CallRecord[];
  readonly memory: PlanMemoryRecord;
}

export interface StageRecord {
  readonly name: string;
  readonly purpose: string;
  readonly effect: string;
  readonly calls: readonly StageCall[];
}

export interface StageCall {
  readonly op: string;
  readonly kernel: string;
}

export type StepPhase = "forward" | "backward" | "update";

export interface CallRecord {
  readonly op: string;
  readonly kernel: string;
  readonly kind: string;
  readonly shape: string;
  readonly part: StepPhase;
  readonly branch: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  readonly us?: number | undefined;
}

export interface PlanMemoryRecord {
  readonly peak: number;
  readonly lowerBound: number;
  readonly peakAt: number;
  readonly tensors: readonly PlannedTensor[];
  readonly persistent: readonly { readonly label: string; readonly bytes: number }[];
}

export interface PlannedTensor {
  readonly label: string;
  readonly type?: string | undefined;
  readonly bytes: number;
  readonly offset: number;
  readonly birth: number;
  readonly death: number;
  readonly isSaved: boolean;
}

export interface MemorySample {
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
  readonly message: string;
  readonly details?: string | undefined;
  readonly phases: readonly string[];
}
