/**
 * The number of threads for this process: the processors of the system, limited by the processor time of its cgroups.
 * `root` replaces "/", so that tests can simulate any machine.
 */

import { availableParallelism } from "node:os";
import { join } from "node:path";
import { HoldfastError } from "../errors/index.js";
import { type GroupFolder, listGroupFolders, readIfPresent } from "./control-groups.js";

export interface HostThreadsInfo {
  readonly threads: number;
  /** The tightest cgroup limit, in processors; it may be a fraction. */
  readonly cgroupCpus: number | undefined;
}

/**
 * Reads the current figures. Rounds a fraction of a processor down. Of two threads on 1.5 processors, one would be
 * throttled in every period. All threads wait for the slowest at the end of each kernel. Newer versions of Node.js
 * round the same way. Half a processor still gets one thread.
 */
export function readHostThreads(root = "/", offered: number = availableParallelism()): HostThreadsInfo {
  const limits = listCpuGroups(root).flatMap((group) => readCpuLimit(group) ?? []);
  if (limits.length === 0) return { threads: offered, cgroupCpus: undefined };
  const cgroupCpus = Math.min(...limits);
  return { threads: Math.max(1, Math.min(offered, Math.floor(cgroupCpus))), cgroupCpus };
}

/** Unreadable figures impose no limit: one thread too many costs only time. */
function listCpuGroups(root: string): GroupFolder[] {
  try {
    return listGroupFolders(root, "cpu");
  } catch (error) {
    if (error instanceof HoldfastError) return [];
    throw error;
  }
}

function readCpuLimit({ path, version }: GroupFolder): number | undefined {
  const [quota, period] =
    version === 2
      ? (tryRead(join(path, "cpu.max"))?.trim().split(" ") ?? [])
      : [tryRead(join(path, "cpu.cfs_quota_us"))?.trim(), tryRead(join(path, "cpu.cfs_period_us"))?.trim()];
  // "max", or −1 in version 1, is no limit.
  if (![quota, period].every((text) => /^\d+$/.test(text ?? ""))) return undefined;
  const cpus = Number(quota) / Number(period);
  return cpus > 0 && Number.isFinite(cpus) ? cpus : undefined;
}

function tryRead(path: string): string | undefined {
  try {
    return readIfPresent(path);
  } catch {
    return undefined;
  }
}
