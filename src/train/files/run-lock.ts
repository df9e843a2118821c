/**
 * The lock of a run's folder: one process writes there. It is a file that says who; what a dead process left is taken over.
 */

import { randomUUID } from "node:crypto";
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { codeOf, fileError, withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { formatDuration } from "../../units/index.js";
import { fromJson, toJson } from "./json.js";
import { identifyProcess, type ProcessIdentity, stateOfProcess } from "./process-identity.js";

export const lockName = "lock.json";

/** A process on another machine counts as gone when the run has not been heard of for so long. */
const silenceMs = 120_000;

export class RunLock {
  readonly #path: string;
  /** The lock's text; its token makes it like no other. */
  readonly #text: string;

  private constructor(path: string, text: string) {
    this.#path = path;
    this.#text = text;
  }

  /**
   * Takes the lock of a folder, or says who has it. For an owner on another machine: `heardMs`, how long ago the run was last
   * heard of, and `limitMs`, how long it may be silent where it usually may be for so long.
   */
  static take(
    folder: string,
    heardMs: () => number,
    limitMs: (usualMs: number) => number = (usualMs) => usualMs,
  ): RunLock {
    const path = join(folder, lockName);
    const text = toJson(lockName, { ...identifyProcess(), token: randomUUID() });
    const aside = `${path}.${process.pid}-${randomUUID()}.part`;
    try {
      writeFileSync(aside, text, { flag: "wx" });
      // A link is there at once with all its text, or is refused where another is: no reader meets half a lock.
      while (!tryLink(aside, path)) removeStale(path, heardMs, limitMs);
    } catch (error) {
      if (error instanceof HoldfastError) throw error;
      throw fileError(`${path} can't be taken`, path, error);
    } finally {
      removeAside(aside);
    }
    return new RunLock(path, text);
  }

  /** Refuses a folder whose lock a living process holds, and writes nothing. The other arguments are those of `take`. */
  static requireFree(
    folder: string,
    heardMs: () => number,
    limitMs: (usualMs: number) => number = (usualMs) => usualMs,
  ): void {
    const path = join(folder, lockName);
    const text = readText(path);
    const owner = text === undefined ? undefined : ownerOf(text);
    if (owner) refuseLiving(path, owner, heardMs, limitMs(silenceMs));
  }

  /** Gives a folder free that this process has taken, in whichever of its threads. */
  static releaseOwn(folder: string): void {
    const path = join(folder, lockName);
    const owner = ownerOf(readText(path) ?? "");
    const own = identifyProcess();
    const isOwn = owner?.pid === own.pid && owner.host === own.host && owner.startTicks === own.startTicks;
    if (isOwn) removeLock(path);
  }

  /** Gives the folder free. Harmless when repeated, and when another process has taken it over. */
  release(): void {
    if (readText(this.#path) === this.#text) removeLock(this.#path);
  }
}

function removeLock(path: string): void {
  withFileError(`${path} can't be removed`, path, () => rmSync(path, { force: true }));
}

/** The lock is taken or refused by then. A file that can't be removed is a leftover, which the next writer tidies away. */
function removeAside(aside: string): void {
  try {
    rmSync(aside, { force: true });
  } catch {
    // It stays.
  }
}

function tryLink(aside: string, path: string): boolean {
  try {
    linkSync(aside, path);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  }
}

/** Removes a lock whose owner is gone; refuses where it is not. */
function removeStale(path: string, heardMs: () => number, limitMs: (usualMs: number) => number): void {
  const text = readText(path);
  if (text === undefined) return;
  const owner = ownerOf(text);
  if (owner) refuseLiving(path, owner, heardMs, limitMs(silenceMs));
  const taken = `${path}.${randomUUID()}.stale`;
  try {
    renameSync(path, taken);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return;
    throw error;
  }
  // Between the look and the move another process may have taken over: then this is its lock, and goes back.
  if (readText(taken) !== text) tryLink(taken, path);
  rmSync(taken);
}

function refuseLiving(path: string, owner: ProcessIdentity, heardMs: () => number, limitMs: number): void {
  const { pid, host } = owner;
  const state = stateOfProcess(owner);
  if (state === "gone") return;
  const silentMs = state === "elsewhere" ? heardMs() : 0;
  if (silentMs >= limitMs) return;
  const where = state === "elsewhere" ? ` on ${host}, heard of ${formatDuration(silentMs)} ago` : "";
  const wayOut =
    state === "elsewhere"
      ? `After ${formatDuration(limitMs)} without a sign of life the lock is taken over. If you are sure that the process has ended, remove ${path}.`
      : "Wait for it or stop it, or give this run another folder.";
  throw new HoldfastError("RUN_LOCKED", `${path} is held by process ${pid}${where}. ${wayOut}`, {
    numbers: { path, pid, host },
  });
}

/** Undefined for a lock that says nothing: no process of ours leaves one. */
function ownerOf(text: string): ProcessIdentity | undefined {
  try {
    const { pid, host, startTicks } = fromJson(lockName, text);
    if (typeof pid !== "number" || typeof host !== "string") return undefined;
    return { pid, host, startTicks: typeof startTicks === "number" ? startTicks : undefined };
  } catch {
    return undefined;
  }
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw fileError(`${path} can't be read`, path, error);
  }
}
