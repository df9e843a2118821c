/**
 * What a launcher says of this process: its rank, the number of ranks, and where rank 0 is. Launchers say it in environment variables, each
 * in its own.
 */

import { HoldfastError } from "../../errors/index.js";

export type Environment = Readonly<Record<string, string | undefined>>;

/** The launchers that Holdfast knows, in the order in which their variables are read. */
export type Launcher = "torchrun" | "Open MPI" | "MPICH" | "Slurm";

/** The place of a process among those that train together. */
export interface Launch {
  /** Undefined if the process was started by hand: it is alone. */
  readonly launcher: Launcher | undefined;
  /** From 0 to `size` − 1. */
  readonly rank: number;
  readonly size: number;
  /** The rank among the processes of this machine: the index of its GPU. */
  readonly localRank: number;
  /** Where rank 0 listens, if the launcher says it. MPI passes it on otherwise. */
  readonly master: { readonly host: string; readonly port: number } | undefined;
  /** How often the launcher has started these processes again. */
  readonly restarts: number;
}

interface Variables {
  readonly launcher: Launcher;
  readonly rank: string;
  readonly size: string;
  readonly localRank: string;
  readonly restarts?: string;
}

/**
 * torchrun is first, because its variables are also those that people and job files set by hand. Slurm is last: inside an allocation its
 * variables are set for `mpirun` too, where they describe the node of `mpirun`.
 */
const table: readonly Variables[] = [
  {
    launcher: "torchrun",
    rank: "RANK",
    size: "WORLD_SIZE",
    localRank: "LOCAL_RANK",
    restarts: "TORCHELASTIC_RESTART_COUNT",
  },
  {
    launcher: "Open MPI",
    rank: "OMPI_COMM_WORLD_RANK",
    size: "OMPI_COMM_WORLD_SIZE",
    localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
  },
  { launcher: "MPICH", rank: "PMI_RANK", size: "PMI_SIZE", localRank: "MPI_LOCALRANKID" },
  { launcher: "Slurm", rank: "SLURM_PROCID", size: "SLURM_NTASKS", localRank: "SLURM_LOCALID" },
];

/** The port of rank 0 if `MASTER_PORT` is unset: PyTorch's. */
const defaultPort = 29500;

const alone: Launch = {
  launcher: undefined,
  rank: 0,
  size: 1,
  localRank: 0,
  master: undefined,
  restarts: 0,
};

/** Reads the variables of the launcher. Without any, the process is alone. */
export function readLaunch(environment: Environment = process.env): Launch {
  const variables = table.find(({ rank, size }) => isSet(environment, rank) && isSet(environment, size));
  if (!variables) {
    rejectHalf(environment);
    return alone;
  }
  const { launcher } = variables;
  const size = readNumber(environment, variables.size, { min: 1 });
  const rank = readNumber(environment, variables.rank, { max: size - 1 });
  // Without a local rank, all ranks are on one machine or each has its own; the devices are compared when they are opened.
  const localRank = isSet(environment, variables.localRank)
    ? readNumber(environment, variables.localRank, { max: size - 1 })
    : rank;
  const { restarts } = variables;
  return {
    ...{ launcher, rank, size, localRank, master: masterOf(environment, launcher) },
    restarts: restarts !== undefined && isSet(environment, restarts) ? readNumber(environment, restarts) : 0,
  };
}

function isSet(environment: Environment, name: string): boolean {
  return (environment[name] ?? "") !== "";
}

/** RANK without WORLD_SIZE, or the reverse: training alone would be a silent mistake. */
function rejectHalf(environment: Environment): void {
  for (const [present, missing] of [
    ["RANK", "WORLD_SIZE"],
    ["WORLD_SIZE", "RANK"],
  ] as const)
    if (isSet(environment, present) && !isSet(environment, missing)) {
      throw new HoldfastError(
        "BAD_SETTING",
        `${present} is "${environment[present]}", but ${missing} is not set. Set both, or neither to run alone.`,
      );
    }
}

function readNumber(environment: Environment, name: string, { min = 0, max = 2 ** 31 - 1 } = {}): number {
  const text = environment[name] ?? "";
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  const range = max < 2 ** 31 - 1 ? `from ${min} to ${max}` : `of at least ${min}`;
  throw new HoldfastError("BAD_SETTING", `${name} is "${text}"; it must be a whole number ${range}.`, {
    numbers: { variable: name },
  });
}

function masterOf(environment: Environment, launcher: Launcher): Launch["master"] {
  const { MASTER_ADDR } = environment;
  const host = MASTER_ADDR || (launcher === "Slurm" ? firstSlurmHost(environment) : undefined);
  if (host === undefined) return undefined;
  const port = isSet(environment, "MASTER_PORT")
    ? readNumber(environment, "MASTER_PORT", { min: 1, max: 65535 })
    : defaultPort;
  // torchrun's own store may listen on MASTER_PORT.
  const { TORCHELASTIC_USE_AGENT_STORE: usesStore } = environment;
  const isTaken = usesStore?.toLowerCase() === "true";
  return { host, port: isTaken ? (port % 65535) + 1 : port };
}

/** The first host of a list like `node[003-010,012],other`. */
function firstSlurmHost(environment: Environment): string | undefined {
  const { SLURM_STEP_NODELIST: ofStep, SLURM_JOB_NODELIST: ofJob } = environment;
  const list = ofStep || ofJob;
  const match = list && /^([^,[]+)(?:\[(\d+)[^\]]*\])?([^,]*)/.exec(list);
  return match ? `${match[1]}${match[2] ?? ""}${match[2] === undefined ? "" : match[3]}` : undefined;
}
