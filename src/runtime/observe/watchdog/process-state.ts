/**
 * What the system says of a process: its threads with their states and wait channels, its memory, and how hard the
 * machine is pressed for memory. Read from /proc; what a system does not have or does not show is left out.
 */

import { readdirSync, readFileSync } from "node:fs";
import { KiB } from "../../../units/index.js";

export interface ThreadState {
  readonly id: number;
  readonly name: string;
  /** One letter, as `ps` shows it: R running, S sleeping, D inside the kernel, T stopped. */
  readonly state: string;
  /** Where in the kernel it waits. */
  readonly waitChannel?: string;
  /** The number of the system call it is inside, on this architecture. */
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

/** Is a process stopped, by a signal or a debugger? So says the state of its main thread; unknown counts as no. */
export function isStopped(pid: number, proc = "/proc"): boolean {
  const [, state] = /^\d+ \(.*\) (\S)/s.exec(read(`${proc}/${pid}/stat`) ?? "") ?? [];
  return state === "T" || state === "t";
}

function readThreads(tasks: string): ThreadState[] {
  return list(tasks).flatMap((entry) => {
    // The name stands in parentheses and may itself hold spaces and parentheses.
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

/** A thread may end between the listing and the look at it, and a file may be closed to us: both are "not there". */
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
