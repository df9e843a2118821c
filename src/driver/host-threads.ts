/**
 * How many threads this process should have: what the system offers it, cut down to the processor time that its control groups
 * allow. `root` stands for "/", so that tests can show it any machine.
 */

import { availableParallelism } from "node:os";
import { join } from "node:path";
import { HoldfastError } from "../errors/index.js";
import { type GroupFolder, listGroupFolders, readIfPresent } from "./control-groups.js";

export interface HostThreadsInfo {
  readonly threads: number;
  /** The tightest limit of the groups, in processors; it may be a fraction. */
  readonly cgroupCpus: number | undefined;
}

/**
 * Reads the figures as they are now. A fraction of a processor is left unused: of two threads on 1.5 processors one would be
 * stopped for a part of every period, and all threads wait for the last one at the end of each kernel. Newer versions of
 * Node.js round so as well. Half a processor still takes one thread.
 */
export function readHostThreads(root = "/", offered: number = availableParallelism()): HostThreadsInfo {
  const limits = listCpuGroups(root).flatMap((group) => cpusOf(group) ?? []);
  if (limits.length === 0) return { threads: offered, cgroupCpus: undefined };
  const cgroupCpus = Math.min(...limits);
  return { threads: Math.max(1, Math.min(offered, Math.floor(cgroupCpus))), cgroupCpus };
}

/** What can't be understood limits nothing: a thread too many costs time, and nothing else. */
function listCpuGroups(root: string): GroupFolder[] {
  try {
    return listGroupFolders(root, "cpu");
  } catch (error) {
    if (error instanceof HoldfastError) return [];
    throw error;
  }
}

function cpusOf({ path, version }: GroupFolder): number | undefined {
  const [quota, period] =
    version === 2
      ? (tryRead(join(path, "cpu.max"))?.trim().split(" ") ?? [])
      : [tryRead(join(path, "cpu.cfs_quota_us"))?.trim(), tryRead(join(path, "cpu.cfs_period_us"))?.trim()];
  // "max", and −1 in version 1, is no limit.
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
