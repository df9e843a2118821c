/** The names of the files in a run's folder. */

export const runFiles = {
  run: "run.json",
  status: "status.json",
  metrics: "metrics.jsonl",
  results: "results.json",
  recorder: "recorder.log",
  checkpoints: "checkpoints",
} as const;

/** The recorder's log of another rank than 0. */
export function recorderOfRank(rank: number): string {
  return `recorder.rank-${rank}.log`;
}

/** The files that the inspector shows. A reader may see the last record half written, and ignores it. */
export const inspectionFiles = {
  /** Numbers of every step, in binary: see `step-log.ts`. */
  steps: "steps.bin",
  /** One `PlanRecord` per line. */
  plans: "plans.jsonl",
  /** One `MemorySample` per line. */
  memory: "memory.jsonl",
  /** One `IncidentRecord` per line. */
  incidents: "incidents.jsonl",
} as const;

/** The name that 0.1.0 gave to incidents.jsonl. Readers read both files. */
export const legacyIncidentsFile = "trouble.jsonl";
