/**
 * What a run leaves behind for those who look at it later: the files beside its metrics, and the records in them. Written while
 * the run goes on, so a reader may find the last record half written; it leaves that one out.
 */

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
  /** Milliseconds since 1970, when the step was sent. */
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

/** A plan of a compiled step, as it was begun. */
export interface PlanRecord {
  /** The compiled step's name, and the dtypes and shapes of its inputs. */
  readonly name: string;
  readonly inputs: string;
  /** ISO 8601, and the run's step before which it was made. */
  readonly at: string;
  readonly step: number;
  /** How it runs, and why not as a graph where it does not. */
  readonly mode: "graph" | "direct";
  readonly reason?: string | undefined;
  /** All that `explain()` says of it. */
  readonly text: string;
  /** From the trace on, what each pass has left. */
  readonly stages: readonly StageRecord[];
  /** As they run. */
  readonly calls: readonly CallRecord[];
  readonly memory: PlanMemoryRecord;
}

export interface StageRecord {
  /** "trace", then the passes' names. */
  readonly name: string;
  /** What the pass is for, and what it did, in words. */
  readonly purpose: string;
  /** The ops of the calls that it has left, in order, each with its kernel. */
  readonly calls: readonly { readonly op: string; readonly kernel: string }[];
}

/** Which part of the step a call belongs to. */
export type StepPart = "forward" | "backward" | "update";

export interface CallRecord {
  readonly op: string;
  readonly kernel: string;
  readonly kind: string;
  readonly shape: string;
  readonly part: StepPart;
  /** 0 is the main branch. */
  readonly branch: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  /** What it adds to the step, in microseconds; missing where it was not measured. */
  readonly us?: number | undefined;
}

export interface PlanMemoryRecord {
  /** The plan's block: what `step.memory().peak` says. */
  readonly peak: number;
  readonly lowerBound: number;
  /** The call at which most is live; -1 without step memory. */
  readonly peakAt: number;
  readonly tensors: readonly PlannedTensor[];
  readonly persistent: readonly { readonly label: string; readonly bytes: number }[];
}

/** One rectangle of the picture of step memory: bytes up, calls along. */
export interface PlannedTensor {
  /** The op that made it. */
  readonly label: string;
  /** As in `f32 [256, 12, 193]`; missing for scratch memory. */
  readonly type?: string | undefined;
  readonly bytes: number;
  readonly offset: number;
  /** The first and the last call that needs it; on branches halves may occur. */
  readonly birth: number;
  readonly death: number;
  /** Made on the way forward, and read on the way back. */
  readonly isSaved: boolean;
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
  "capture refused",
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
