/** compile: a step becomes one launch. Traced, simplified, fused, scheduled, planned, verified; then run or captured. */

export { assignStreams, planStep, serializedStep } from "./compile.js";
export { streamOptions } from "./cost-model.js";
export { timeCalls } from "./execute/call-times.js";
export { PlacedStep, StepBlock } from "./execute/placed-step.js";
export { fitsMemory, requireAvailable } from "./memory/memory-check.js";
export type { MemoryReport, PeakHolder } from "./memory/memory-report.js";
export {
  type PassName,
  type PassSettings,
  type PhaseName,
  passNames,
  phaseNames,
  streamSetting,
} from "./pipeline.js";
export type { PlannedStep } from "./planned-step.js";
export type { Call } from "./program/program.js";
export { collectivesIn } from "./ranks.js";
export { describeCalls } from "./report/call-table.js";
export { type ExplainedPlan, type ExplainOptions, explainStep } from "./report/explain.js";
export { reportPlan } from "./report/plan-report.js";
export type { BadIndex, StepRecord } from "./trace/step-record.js";
export {
  auditStep,
  type ExpectedWork,
  expectedWork,
  type Trace,
  type TracedOp,
  traceStep,
} from "./trace/trace.js";
