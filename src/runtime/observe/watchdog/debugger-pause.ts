/**
 * Tells whether a debugger holds the main thread at a breakpoint. The watchdog's thread asks V8 itself: it opens a session
 * with the main thread's inspector and enables the debugger there, which V8 answers with "paused" where it is. A thread
 * that is busy or blocked gives another answer, or none. Only a process that listens for a debugger is asked.
 */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { Session } from "node:inspector";

/** How long an answer may take; a paused thread has nothing else to do. */
const patienceMs = 300;

/** For a worker thread. Where there is no inspector, nobody can be paused by it. */
export async function isPausedByDebugger(): Promise<boolean> {
  if (!isListening()) return false;
  let session: Session | undefined;
  try {
    const inspector = await import("node:inspector");
    session = new inspector.Session();
    session.connectToMainThread();
    stayForSessions();
    return await askSession(session);
  } catch {
    return false;
  } finally {
    session?.disconnect();
  }
}

function askSession(session: Session): Promise<boolean> {
  return new Promise((answer) => {
    const timer = setTimeout(() => answer(false), patienceMs);
    const tell = (isPaused: boolean): void => {
      clearTimeout(timer);
      answer(isPaused);
    };
    // V8 sends this event before it confirms the command.
    session.once("Debugger.paused", () => tell(true));
    session.post("Debugger.enable", () => tell(false));
  });
}

let isStaying = false;

/**
 * Keeps this thread alive for good. The main thread ends a session when it gets round to it and then writes to the thread
 * that had opened it: Node aborts if that one is gone. The process can end all the same.
 */
function stayForSessions(): void {
  if (!isStaying) setInterval(() => {}, 2 ** 30);
  isStaying = true;
}

/** The state of a TCP socket that waits for connections, as /proc writes it. */
const listening = "0A";

/** Does this process wait for connections, as one does that can be debugged? Where /proc can't tell, it may. */
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

/** The rows of a table without its head; none where the system has no such table. */
function readTable(path: string): string[][] {
  const text = readIfThere(path);
  return text
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/));
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

/** A file may be closed between the listing and the look at it. */
function linkAt(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
