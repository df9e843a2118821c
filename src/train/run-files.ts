/** The names of the files in a run's folder. */

export const runFiles = {
  run: "run.json",
  status: "status.json",
  metrics: "metrics.jsonl",
  results: "results.json",
  recorder: "recorder.log",
  checkpoints: "checkpoints",
} as const;

/** The recorder's log of a rank. */
export function recorderOfRank(rank: number): string {
  return rank === 0 ? runFiles.recorder : `recorder.rank-${rank}.log`;
}

/** The files of a distributed run's ranks. */
export const rankFiles = {
  /** The ranks, as a list of `RankRecord`. Rank 0 writes it. */
  ranks: "ranks.json",
  /** One `RankSteps` per line. */
  steps: (rank: number): string => `steps.rank-${rank}.jsonl`,
} as const;

/** The names of files that a rank writes. */
export const rankFileName = /^(?:recorder\.rank-\d+(?:\.old)?\.log|steps\.rank-\d+\.jsonl)$/;

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
