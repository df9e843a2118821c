/**
 * Identifies a process, so that another process can tell later whether it still runs. A PID alone is not enough: PIDs are reused,
 * the first process of every container has PID 1, and containers may share a host name.
 */

import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import { isProcessAlive } from "../../data/index.js";

export interface ProcessIdentity {
  readonly pid: number;
  readonly host: string;
  /** The start time in clock ticks; undefined if unknown. */
  readonly startTicks?: number | undefined;
  /** The kernel's boot ID: it changes with each reboot and machine. Undefined if unknown. */
  readonly boot?: string | undefined;
  /** The PID namespace: each container has its own. Undefined if unknown. */
  readonly pidNamespace?: string | undefined;
}

/** "elsewhere": on another machine or in another container, so its state is unknown. */
export type ProcessState = "running" | "gone" | "elsewhere";

export function identifyProcess(pid: number = process.pid): ProcessIdentity {
  const startTicks = readProcess(pid)?.startTicks;
  return { pid, host: hostname(), startTicks, boot: readBoot(), pidNamespace: readNamespace() };
}

export function stateOfProcess({ pid, host, startTicks, boot, pidNamespace }: ProcessIdentity): ProcessState {
  if (host !== hostname() || differ(boot, readBoot()) || differ(pidNamespace, readNamespace()))
    return "elsewhere";
  if (!isProcessAlive(pid)) return "gone";
  const current = readProcess(pid);
  if (!current) return "running";
  const isAnother = startTicks !== undefined && current.startTicks !== startTicks;
  return isAnother || current.isZombie ? "gone" : "running";
}

/** True if both are known and differ. */
function differ(a: string | undefined, b: string | undefined): boolean {
  return a !== undefined && b !== undefined && a !== b;
}

/** Facts about a process from /proc; undefined on other systems. */
function readProcess(pid: number): { readonly startTicks: number; readonly isZombie: boolean } | undefined {
  const line = readOrUndefined(() => readFileSync(`/proc/${pid}/stat`, "latin1"));
  if (line === undefined) return undefined;
  // The name is in brackets and may itself contain brackets; the state follows it.
  const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
  return { startTicks: Number(fields[19]), isZombie: fields[0] === "Z" || fields[0] === "X" };
}

export function readBoot(): string | undefined {
  return readOrUndefined(() => readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim());
}

function readNamespace(): string | undefined {
  return readOrUndefined(() => readlinkSync("/proc/self/ns/pid"));
}

function readOrUndefined(read: () => string): string | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
