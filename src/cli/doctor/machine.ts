/** What the machine is: system, processor, memory as it truly is, and the settings that its environment makes. */

import { arch, cpus, release, type as systemName } from "node:os";
import { readHostMemory, readHostThreads } from "../../driver/index.js";
import { settingsTable } from "../../runtime/index.js";

export type Environment = Readonly<Record<string, string | undefined>>;

export interface MachineFacts {
  readonly system: string;
  readonly release: string;
  readonly architecture: string;
  readonly node: string;
  readonly processor: string;
  /** What the CPU driver takes: the system's offer, the control group's limit counted in. */
  readonly threads: number;
  readonly cgroupCpus: number | null;
  readonly memory: {
    readonly totalBytes: number;
    /** What can be taken without swapping or being killed, the control group's limit counted in. */
    readonly availableBytes: number;
    readonly cgroupLimitBytes: number | null;
    readonly cgroupUsedBytes: number | null;
  };
  /** The variables of Holdfast's that are set. */
  readonly settings: Readonly<Record<string, string>>;
}

export function readMachine(environment: Environment, hostRoot?: string): MachineFacts {
  const { total, available, cgroupLimit, cgroupUsed } = readHostMemory(hostRoot);
  const { threads, cgroupCpus } = readHostThreads(hostRoot);
  const variables = Object.values(settingsTable).map(({ variable }) => variable);
  return {
    system: systemName(),
    release: release(),
    architecture: arch(),
    node: process.versions.node,
    processor: cpus()[0]?.model.trim() || "unknown",
    threads,
    cgroupCpus: cgroupCpus ?? null,
    memory: {
      totalBytes: total,
      availableBytes: available,
      cgroupLimitBytes: cgroupLimit ?? null,
      cgroupUsedBytes: cgroupUsed ?? null,
    },
    settings: Object.fromEntries(
      variables.flatMap((variable) => {
        const text = environment[variable];
        return text === undefined ? [] : [[variable, text]];
      }),
    ),
  };
}
