/**
 * Detects whether a debugger has paused the main thread. The watchdog's thread opens a session with the main thread's
 * inspector and enables the debugger: V8 then reports "paused" if it is. A busy or blocked thread answers otherwise, or
 * not at all. Only a process that listens for a debugger is asked.
 */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { Session } from "node:inspector";

/** Time limit for the answer; a paused thread has nothing else to do. */
const timeoutMs = 300;

/**
 * True if a debugger has paused the main thread. Call it from a worker thread. It is false if Node.js has no inspector.
 */
export async function isPausedByDebugger(): Promise<boolean> {
  if (!isListening()) return false;
  let session: Session | undefined;
  try {
    const inspector = await import("node:inspector");
    session = new inspector.Session();
    session.connectToMainThread();
    keepThreadAlive();
    return await askSession(session);
  } catch {
    return false;
  } finally {
    session?.disconnect();
  }
}

function askSession(session: Session): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), timeoutMs);
    const answer = (isPaused: boolean): void => {
      clearTimeout(timer);
      resolve(isPaused);
    };
    // V8 sends this event before it confirms the command.
    session.once("Debugger.paused", () => answer(true));
    session.post("Debugger.enable", () => answer(false));
  });
}

let isKeptAlive = false;

/**
 * Keeps this thread alive for good. The main thread closes a session later and then writes to the thread that opened
 * it; Node aborts if that thread is gone. The process can still exit.
 */
function keepThreadAlive(): void {
  if (!isKeptAlive) setInterval(() => {}, 2 ** 30);
  isKeptAlive = true;
}

/** The state of a listening TCP socket in /proc. */
const listening = "0A";

/** True if this process listens for connections, as a debugged process does, or if /proc does not show it. */
export function isListening(proc = "/proc/self"): boolean {
  try {
    const tables = ["tcp", "tcp6"].map((name) => readTable(`${proc}/net/${name}`));
    const inodes = new Set(
      tables.flatMap((rows) => rows.flatMap((row) => (row[3] === listening && row[9] ? [row[9]] : []))),
    );
    return readdirSync(`${proc}/fd`).some((name) => {
      const inode = /^socket:\[(\d+)\]$/.exec(linkAt(`${proc}/fd/${name}`))?.[1];
      return inode !== undefined && inodes.has(inode);
    });
  } catch {
    return true;
  }
}

/** The rows of a table without its header; none if the system has no such table. */
function readTable(path: string): string[][] {
  const text = readIfPresent(path);
  return text
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/));
}

function readIfPresent(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** A file may be closed between the listing and the read. */
function linkAt(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
