/** The report of a compiled step's plan: its passes, its calls and its memory. */

/** The phases of a training step, in order. Work that names no phase is "forward". */
export const stepPhases = ["forward", "backward", "update"] as const;

export type StepPhase = (typeof stepPhases)[number];

/** Bytes by label, such as one region of persistent memory. */
export interface LabelBytes {
  readonly label: string;
  readonly bytes: number;
}

export interface PlanReport {
  /** The trace first, then every pass. */
  readonly stages: readonly StageReport[];
  /** In launch order. */
  readonly calls: readonly CallReport[];
  readonly memory: PlanMemory;
}

/** A plan of a compiled step as plain data. */
export interface StepPlanReport extends PlanReport {
  /** The step's name, and the dtypes and shapes of the plan's inputs. */
  readonly name: string;
  readonly inputs: string;
  /** How the plan runs. Undefined before its first run. */
  readonly mode?: "graph" | "direct" | undefined;
  /** Why the plan does not run as a graph. */
  readonly reason?: string | undefined;
  /** True if the plan could not be captured. Otherwise a direct run was requested, or is no slower. */
  readonly isRejected: boolean;
  /** The text of `explain()`. */
  readonly text: string;
}

export interface StageReport {
  /** "trace", or the name of a pass. */
  readonly name: string;
  /** The purpose of the pass. */
  readonly purpose: string;
  /** Its effect on this plan. */
  readonly effect: string;
  /** The calls after this pass, in order. */
  readonly calls: readonly StageCall[];
}

export interface StageCall {
  readonly op: string;
  readonly kernel: string;
}

export interface CallReport {
  readonly op: string;
  readonly kernel: string;
  /** "row", "combo", "column", "gemm", "attention" and so on. */
  readonly kind: string;
  readonly shape: string;
  readonly phase: StepPhase;
  /** 0 is the main stream. */
  readonly stream: number;
  readonly readBytes: number;
  readonly writtenBytes: number;
  /** The time that the call adds to the step, in microseconds. Undefined if it was not measured. */
  readonly us?: number | undefined;
}

export interface PlanMemory {
  /** Bytes of the plan's block. */
  readonly peak: number;
  /** The maximum number of bytes that are live at once. */
  readonly lowerBound: number;
  /** The call with the most live bytes; -1 for a plan without step memory. */
  readonly peakAt: number;
  readonly tensors: readonly PlannedTensor[];
  /** Persistent memory that the step uses. */
  readonly persistent: readonly LabelBytes[];
}

/** The position and the lifetime of a value of the step. */
export interface PlannedTensor {
  /** The op that made it. */
  readonly label: string;
  /** Such as `f32 [256, 12, 193]`. Undefined for scratch memory. */
  readonly type?: string | undefined;
  /** Including padding for alignment. */
  readonly bytes: number;
  readonly offset: number;
  /** The first and the last call that use it. A half is a point between two calls of the main stream. */
  readonly birth: number;
  readonly death: number;
  /** True if the forward phase writes it and the backward phase reads it. */
  readonly isSaved: boolean;
}
