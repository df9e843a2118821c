/** The records of a run's ranks: who they are, and what each did in its steps. */

/** A rank, in ranks.json. */
export interface RankRecord {
  readonly rank: number;
  readonly host: string;
  readonly pid: number;
  /** The device's name, as the driver reports it. */
  readonly device: string;
  /** By how many milliseconds its clock was ahead of rank 0's when the run was opened. */
  readonly clockMs: number;
}

/** What a rank has exchanged with the others by collectives. */
export interface RankTraffic {
  readonly collectives: number;
  readonly sentBytes: number;
  /** The host's time in collectives, in milliseconds: waiting for other ranks, and moving bytes. */
  readonly ms: number;
}

/** Consecutive steps of a rank: a line of `steps.rank-N.jsonl`. */
export interface RankSteps {
  /** When the last of them was sent to the device: milliseconds since 1970, by the clock of rank 0. */
  readonly time: number;
  /** The last step, and the number of steps. */
  readonly step: number;
  readonly steps: number;
  /** From the step before the first of them to the last. */
  readonly ms: number;
  /** Undefined on GPUs: their collectives are part of a graph, and the host does not see them. */
  readonly traffic?: RankTraffic | undefined;
}
