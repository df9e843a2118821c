/**
 * Which process wrote something, so that another can tell later whether it still runs. A number alone would not do: numbers
 * are given again, the first process of every container is 1, and containers may share a host's name.
 */

import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import { isProcessAlive } from "../../data/index.js";

export interface ProcessIdentity {
  readonly pid: number;
  readonly host: string;
  /** When it was started, in the system's ticks; undefined where the system does not tell. */
  readonly startTicks?: number | undefined;
  /** The running kernel: another one after a reboot and on another machine. Undefined where the system does not tell. */
  readonly boot?: string | undefined;
  /** Where its number counts: containers number their processes apart. Undefined where the system does not tell. */
  readonly pidNamespace?: string | undefined;
}

/** "elsewhere": it is on another machine or in another container, and can't be asked after. */
export type ProcessState = "running" | "gone" | "elsewhere";

export function identifyProcess(pid: number = process.pid): ProcessIdentity {
  const startTicks = readProcess(pid)?.startTicks;
  return { pid, host: hostname(), startTicks, boot: readBoot(), pidNamespace: readNamespace() };
}

export function stateOfProcess({ pid, host, startTicks, boot, pidNamespace }: ProcessIdentity): ProcessState {
  if (host !== hostname() || differ(boot, readBoot()) || differ(pidNamespace, readNamespace()))
    return "elsewhere";
  if (!isProcessAlive(pid)) return "gone";
  const found = readProcess(pid);
  if (!found) return "running";
  const isAnother = startTicks !== undefined && found.startTicks !== startTicks;
  return isAnother || found.isZombie ? "gone" : "running";
}

/** Both are known, and they are not the same. */
function differ(one: string | undefined, other: string | undefined): boolean {
  return one !== undefined && other !== undefined && one !== other;
}

/** What Linux tells of a process; undefined on other systems. */
function readProcess(pid: number): { readonly startTicks: number; readonly isZombie: boolean } | undefined {
  const line = known(() => readFileSync(`/proc/${pid}/stat`, "latin1"));
  if (line === undefined) return undefined;
  // The name stands in brackets and may hold anything, brackets too; the state follows it.
  const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
  return { startTicks: Number(fields[19]), isZombie: fields[0] === "Z" || fields[0] === "X" };
}

export function readBoot(): string | undefined {
  return known(() => readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim());
}

function readNamespace(): string | undefined {
  return known(() => readlinkSync("/proc/self/ns/pid"));
}

function known(read: () => string): string | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
