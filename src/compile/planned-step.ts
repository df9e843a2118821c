/** A step that has a plan and no memory yet. */

import type { Region } from "../runtime/index.js";
import type { GemmReport } from "./autotune/gemms.js";
import type { WeightCopies } from "./execute/weight-copies.js";
import type { Fallback } from "./fallback.js";
import type { MemoryReport } from "./memory/memory-report.js";
import type { Stage } from "./pipeline.js";
import type { BufferSlice, Plan, Schedule } from "./program/program.js";
import type { StepRecord } from "./trace/step-record.js";

export interface PlannedStep {
  readonly name: string;
  /** How many ops of the table the step called. */
  readonly ops: number;
  /** The dtypes and shapes of its buffers by buffer id, where they are known. */
  readonly types: ReadonlyMap<number, string>;
  readonly stages: readonly Stage[];
  /** The phases that were left out because the verifier rejected the plan with them; undefined if it accepted the first plan. */
  readonly fallback?: Fallback | undefined;
  /** Persistent memory that is not read after the step. */
  readonly deadOnExit: readonly BufferSlice[];
  /** True if GEMMs may use other algorithms than eager code. */
  readonly isTuned: boolean;
  /** True if launches may use programmatic dependent launch. */
  readonly usesPdl: boolean;
  readonly schedule: Schedule;
  readonly plan: Plan;
  readonly memory: MemoryReport;
  /** The result of GEMM autotuning, if it ran. */
  readonly gemms?: GemmReport | undefined;
  /** Persistent memory that belongs to the step: its constants and counters. */
  readonly regions: readonly Region[];
  /** The weight copies that its calls access. */
  readonly copies: WeightCopies;
  /** Its counters on the device, if it has guards or index checks. */
  readonly record: StepRecord | undefined;
}
