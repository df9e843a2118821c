/**
 * Which process wrote something, so that another can tell later whether it still runs. A number alone would not do: numbers
 * are given again, and the first process of every container is 1.
 */

import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { isProcessAlive } from "../../data/index.js";

export interface ProcessIdentity {
  readonly pid: number;
  readonly host: string;
  /** When it was started, in the system's ticks; undefined where the system does not tell. */
  readonly startTicks?: number | undefined;
}

/** "elsewhere": it is on another machine, and can't be asked after. */
export type ProcessState = "running" | "gone" | "elsewhere";

export function identifyProcess(pid: number = process.pid): ProcessIdentity {
  return { pid, host: hostname(), startTicks: readProcess(pid)?.startTicks };
}

export function stateOfProcess({ pid, host, startTicks }: ProcessIdentity): ProcessState {
  if (host !== hostname()) return "elsewhere";
  if (!isProcessAlive(pid)) return "gone";
  const found = readProcess(pid);
  if (!found) return "running";
  const isAnother = startTicks !== undefined && found.startTicks !== startTicks;
  return isAnother || found.isZombie ? "gone" : "running";
}

/** What Linux tells of a process; undefined on other systems. */
function readProcess(pid: number): { readonly startTicks: number; readonly isZombie: boolean } | undefined {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, "latin1");
    // The name stands in brackets and may hold anything, brackets too; the state follows it.
    const fields = line.slice(line.lastIndexOf(")") + 2).split(" ");
    return { startTicks: Number(fields[19]), isZombie: fields[0] === "Z" || fields[0] === "X" };
  } catch {
    return undefined;
  }
}
