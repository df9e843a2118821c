/** A lock between test processes, for work that one of them does for all. */

import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { sleepSync } from "../../src/units/index.js";
import { generousTimeoutMs } from "./timeouts.js";

/**
 * Runs the work while this process holds the lock, a file with its process id. If the owner has exited, or the wait takes very long, the work
 * runs without the lock. So two processes must be able to do the work at once.
 */
export function withLock(path: string, work: () => void): void {
  const endMs = performance.now() + generousTimeoutMs;
  let isHeld = takeLock(path);
  while (!isHeld && isOwnerAlive(path) && performance.now() < endMs) {
    sleepSync(20);
    isHeld = takeLock(path);
  }
  try {
    work();
  } finally {
    rmSync(path, { force: true });
  }
}

function takeLock(path: string): boolean {
  try {
    writeFileSync(path, String(process.pid), { flag: "wx" });
    return true;
  } catch {
    return false;
  }
}

function isOwnerAlive(path: string): boolean {
  try {
    // An owner that has created the file, and not written it yet, is alive.
    const owner = Number(readFileSync(path, "utf8")) || process.pid;
    return process.kill(owner, 0);
  } catch (error) {
    // ENOENT: the owner has just released it. EPERM: it belongs to another user.
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    return code === "ENOENT" || code === "EPERM";
  }
}
