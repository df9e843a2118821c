/** compile: a step becomes one launch. Traced, simplified, fused, scheduled, planned, verified; then run or captured. */

export { timeCalls } from "./call-times.js";
export {
  branchings,
  branchStep,
  type PassName,
  type PassSettings,
  type PlannedStep,
  passNames,
  planStep,
  stepInTurn,
} from "./compile.js";
export { type ExplainedPlan, type ExplainOptions, explainStep } from "./explain.js";
export type { LabelBytes, MemoryReport, PeakHolder } from "./memory-report.js";
export { PlacedStep } from "./placed-step.js";
export {
  type CallReport,
  type PlanMemory,
  type PlannedTensor,
  type PlanReport,
  reportPlan,
  type StageReport,
} from "./plan-report.js";
export { hasRoom, requireRoom } from "./room.js";
export type { BadIndex, StepRecord } from "./step-record.js";
export {
  auditStep,
  type ExpectedWork,
  expectedWork,
  type Trace,
  type TracedOp,
  traceStep,
} from "./trace.js";
