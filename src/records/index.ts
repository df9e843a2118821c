/**
 * records: the data in a run's folder, as plain types. The layers that write it, the readers and the inspector's page share
 * them. This folder imports nothing, because the page is compiled for browsers; the page may import its types only.
 */

export {
  type IncidentKind,
  type IncidentRecord,
  incidentKinds,
  type MemorySample,
  type PlanRecord,
  type StepColumn,
  stepColumns,
} from "./inspection.js";
export {
  type CallReport,
  type LabelBytes,
  type PlanMemory,
  type PlannedTensor,
  type PlanReport,
  type StageCall,
  type StageReport,
  type StepPhase,
  type StepPlanReport,
  stepPhases,
} from "./plan.js";
export type { RankRecord, RankSteps, RankTraffic } from "./ranks.js";
export {
  type JsonRecord,
  type RunFigures,
  type RunPhase,
  type RunProgress,
  type RunRecord,
  type RunState,
  type RunStatus,
  runStates,
} from "./run.js";
