/** The ids of this process's threads in /proc. Only Linux has them. */

import { existsSync, readlinkSync } from "node:fs";

/** The calling thread's id; undefined if the system has none. */
export function currentThreadId(): number | undefined {
  try {
    const id = Number(/(\d+)$/.exec(readlinkSync("/proc/thread-self"))?.[1]);
    return Number.isSafeInteger(id) ? id : undefined;
  } catch {
    return undefined;
  }
}

/** True if a thread of this process has ended. A blocked thread can ask this: it needs no event loop. */
export function hasThreadEnded(threadId: number): boolean {
  return existsSync("/proc/self/task") && !existsSync(`/proc/self/task/${threadId}`);
}
