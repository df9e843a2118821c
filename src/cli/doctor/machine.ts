/** The machine: system, processor, available memory, and the settings in its environment. */

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
  /** Threads that the CPU driver uses, within the control group's limit. */
  readonly threads: number;
  readonly cgroupCpus: number | null;
  readonly memory: {
    readonly totalBytes: number;
    /** Memory that can be allocated without swapping or an OOM kill, within the control group's limit. */
    readonly availableBytes: number;
    readonly cgroupLimitBytes: number | null;
    readonly cgroupUsedBytes: number | null;
  };
  /** Holdfast's environment variables that are set. */
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
