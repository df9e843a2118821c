/**
 * The system's view of a process: threads with states and wait channels, memory, and the machine's memory pressure.
 * Read from /proc. Values that a system does not provide are missing.
 */

import { readdirSync, readFileSync } from "node:fs";
import { KiB } from "../../../units/index.js";

export interface ThreadState {
  readonly id: number;
  readonly name: string;
  /** One letter, as in `ps`: R running, S sleeping, D uninterruptible, T stopped. */
  readonly state: string;
  /** The kernel function it waits in. */
  readonly waitChannel?: string;
  /** The number of its open system call, for this architecture. */
  readonly systemCall?: number;
}

export interface ProcessState {
  readonly threads: readonly ThreadState[];
  readonly residentBytes?: number;
  readonly availableBytes?: number;
  /** The lines of /proc/pressure/memory: the share of time in which some or all tasks waited for memory. */
  readonly memoryPressure?: readonly string[];
}

export function readProcessState(pid: number, proc = "/proc"): ProcessState {
  const status = read(`${proc}/${pid}/status`);
  const pressure = read(`${proc}/pressure/memory`);
  return {
    threads: readThreads(`${proc}/${pid}/task`),
    ...present("residentBytes", kibibytes(status, "VmRSS")),
    ...present("availableBytes", kibibytes(read(`${proc}/meminfo`), "MemAvailable")),
    ...present("memoryPressure", pressure?.trim().split("\n")),
  };
}

/** True if a signal or a debugger has stopped the process, by the state of its main thread. Unknown counts as false. */
export function isStopped(pid: number, proc = "/proc"): boolean {
  const [, state] = /^\d+ \(.*\) (\S)/s.exec(read(`${proc}/${pid}/stat`) ?? "") ?? [];
  return state === "T" || state === "t";
}

function readThreads(tasks: string): ThreadState[] {
  return list(tasks).flatMap((entry) => {
    // The name is in parentheses and may itself contain spaces and parentheses.
    const [, id, name, state] = /^(\d+) \((.*)\) (\S)/s.exec(read(`${tasks}/${entry}/stat`) ?? "") ?? [];
    if (id === undefined || name === undefined || state === undefined) return [];
    const channel = read(`${tasks}/${entry}/wchan`)?.trim();
    const systemCall = /^\d+/.exec(read(`${tasks}/${entry}/syscall`) ?? "")?.[0];
    return {
      id: Number(id),
      name,
      state,
      ...present("waitChannel", channel === "" || channel === "0" ? undefined : channel),
      ...present("systemCall", systemCall === undefined ? undefined : Number(systemCall)),
    };
  });
}

function kibibytes(text: string | undefined, field: string): number | undefined {
  const count = new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(text ?? "")?.[1];
  return count === undefined ? undefined : Number(count) * KiB;
}

function present<K extends string, T>(name: K, value: T | undefined): { readonly [key in K]?: T } {
  return (value === undefined ? {} : { [name]: value }) as { readonly [key in K]?: T };
}

/** A thread may end between the listing and the read, and a file may be unreadable: both count as missing. */
function read(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
