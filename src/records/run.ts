/** The records run.json and status.json. */

/** Plain data by name: null, booleans, numbers, strings, arrays and records of these. `undefined` is omitted. */
export type JsonRecord = Readonly<Record<string, unknown>>;

/** run.json: the settings and the machine of a run. */
export interface RunRecord {
  readonly settings: JsonRecord;
  /** The device's name, as the driver reports it. */
  readonly device: string;
  readonly holdfast: string;
  readonly node: string;
  /** The system and the processor, such as `linux x64`. */
  readonly platform: string;
  readonly host: string;
  /** The time of the first start, in ISO 8601. */
  readonly started: string;
}

export const runStates = ["running", "finished", "stopped", "diverged", "failed"] as const;

/**
 * "stopped": the run was asked to end early and can be resumed. "diverged": its loss or its gradients became not finite, and
 * resuming it would not help.
 */
export type RunState = (typeof runStates)[number];

/** Work of a run between its steps. */
export type RunPhase =
  | "preparing features"
  | "preparing a fold"
  | "compiling"
  | "testing"
  | "evaluating"
  | "writing samples"
  | "saving the model";

/** The position of a run. */
export interface RunProgress {
  /** Completed steps. */
  readonly step: number;
  /** Steps in total. */
  readonly of?: number | undefined;
  readonly epoch?: number | undefined;
  readonly fold?: number | undefined;
  /** The current work if it is not a step. For a failed run: the work that failed. */
  readonly phase?: RunPhase | undefined;
  readonly figures?: RunFigures | undefined;
}

/** Measurements of a run. Unknown values are undefined. */
export interface RunFigures {
  /** The latest loss that the host has read. */
  readonly loss?: number | undefined;
  /** Samples trained on since the process started. A sample counts each time it is used. */
  readonly samples?: number | undefined;
  readonly samplesPerSecond?: number | undefined;
  /** Tokens of texts, without padding. */
  readonly tokensPerSecond?: number | undefined;
  /** Of the latest evaluation of a language model. */
  readonly perplexity?: number | undefined;
  /** Bytes charged to the memory budget, and its limit. */
  readonly usedBytes?: number | undefined;
  readonly budgetBytes?: number | undefined;
  /** Steps that the device skipped because a gradient was not finite. Updated after each epoch. */
  readonly skipped?: number | undefined;
}

/** status.json: the state and the position of a run. It is replaced as a whole, about once a second. */
export interface RunStatus extends RunProgress {
  readonly state: RunState;
  /** The heartbeat: the time of this write, in ISO 8601. */
  readonly updated: string;
  /** The last time that the step or the phase changed. */
  readonly progressed: string;
  /** Why the run ended. Undefined while it is running. */
  readonly reason?: string | undefined;
  readonly exitCode?: number | undefined;
  readonly pid: number;
  readonly host: string;
  readonly startTicks?: number | undefined;
  readonly boot?: string | undefined;
  readonly pidNamespace?: string | undefined;
}
