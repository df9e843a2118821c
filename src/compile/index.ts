/** compile: a step becomes one launch. Traced, simplified, fused, scheduled, planned, verified; then run or captured. */

export {
  type PassName,
  type PassSettings,
  PlacedStep,
  type PlannedStep,
  passNames,
  planStep,
} from "./compile.js";
export { type Trace, type TracedOp, traceStep } from "./trace.js";
