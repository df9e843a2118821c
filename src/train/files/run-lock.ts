/**
 * The lock of a run's folder. Only one process may write there. If the system supports it, flock on the folder decides. A lock
 * file names the owner for messages and readers, and decides on disks without flock. A dead process's lock is taken over.
 */

import { randomUUID } from "node:crypto";
import { linkSync, lstatSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { errorCode, fileError, withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { formatDuration } from "../../units/index.js";
import { type FolderLock, isOnLocalDisk, tryLockFolder } from "./folder-lock.js";
import { fromJson, toJson } from "./json.js";
import {
  identifyProcess,
  type ProcessIdentity,
  type ProcessState,
  readBoot,
  stateOfProcess,
} from "./process-identity.js";

export const lockName = "lock.json";

/** A process that can't be asked after counts as gone when the run has not been heard of for so long. */
const silenceMs = 120_000;

/** Another process may be probing the lock, or may hold it without having written its record yet. */
const patienceMs = 500;
const pauseMs = 10;

/** How often the record may change while it is taken. */
const maxTries = 1000;

interface Owner extends ProcessIdentity {
  /** Has it the folder's lock of the operating system as well? */
  readonly isFolderLocked: boolean;
}

/** How an owner that can't be asked after is judged: how long ago it was heard of, and how long it may be silent. */
interface Silence {
  readonly heardMs: () => number;
  readonly limitMs: (usualMs: number) => number;
}

export class RunLock {
  readonly #path: string;
  /** The lock's text; its token makes it like no other. */
  readonly #text: string;
  readonly #folderLock: FolderLock | undefined;

  private constructor(path: string, text: string, folderLock: FolderLock | undefined) {
    this.#path = path;
    this.#text = text;
    this.#folderLock = folderLock;
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
    const aside = `${path}.${process.pid}-${randomUUID()}.part`;
    const silence = { heardMs, limitMs };
    let folderLock: FolderLock | undefined;
    try {
      folderLock = lockFolder(folder, path);
      const record = { ...identifyProcess(), isFolderLocked: folderLock !== undefined, token: randomUUID() };
      const text = toJson(lockName, record);
      writeFileSync(aside, text, { flag: "wx" });
      takeRecord(aside, path, (owner) => requireGone(path, owner, folderLock, silence));
      return new RunLock(path, text, folderLock);
    } catch (error) {
      folderLock?.release();
      if (error instanceof HoldfastError) throw error;
      throw fileError(`${path} can't be taken`, path, error);
    } finally {
      removeAside(aside);
    }
  }

  /** Rejects a folder whose lock a living process holds, and writes nothing. The other arguments are those of `take`. */
  static requireFree(
    folder: string,
    heardMs: () => number,
    limitMs: (usualMs: number) => number = (usualMs) => usualMs,
  ): void {
    const path = join(folder, lockName);
    const folderLock = lockFolder(folder, path);
    try {
      const owner = ownerAt(path);
      if (owner) requireGone(path, owner, folderLock, { heardMs, limitMs });
    } finally {
      folderLock?.release();
    }
  }

  /** Gives a folder free that this process has taken, in whichever of its threads. The process is about to end. */
  static releaseOwn(folder: string): void {
    const path = join(folder, lockName);
    const owner = ownerAt(path);
    const own = identifyProcess();
    const isOwn = owner?.pid === own.pid && owner.host === own.host && owner.startTicks === own.startTicks;
    if (isOwn) removeLock(path);
  }

  /** Gives the folder free. Harmless when repeated, and when another process has taken it over. */
  release(): void {
    try {
      if (readText(this.#path) === this.#text) removeLock(this.#path);
    } finally {
      this.#folderLock?.release();
    }
  }
}

function removeLock(path: string): void {
  withFileError(`${path} can't be removed`, path, () => rmSync(path, { force: true }));
}

/** The lock is taken or rejected by then. A file that can't be removed is a leftover, which the next writer tidies away. */
function removeAside(aside: string): void {
  try {
    rmSync(aside, { force: true });
  } catch {
    // It stays.
  }
}

/** The system's lock of a folder, undefined where there are none. Rejects where a process has it. */
function lockFolder(folder: string, path: string): FolderLock | undefined {
  for (let waitedMs = 0; ; waitedMs += pauseMs) {
    const lock = tryLockFolder(folder);
    if (lock !== "held") return lock === "none" ? undefined : lock;
    const owner = ownerAt(path);
    const isNamed = owner !== undefined && stateOfProcess(owner) === "running";
    if (isNamed || waitedMs >= patienceMs) throw heldBy(path, owner);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pauseMs);
  }
}

/** Puts the record in its place, and removes what others have left there, if `requireGone` lets it. */
function takeRecord(aside: string, path: string, requireGone: (owner: Owner) => void): void {
  // A link is there at once with all its text, or is rejected where another is: no reader meets half a lock.
  for (let tries = 0; !tryLink(aside, path); tries++) {
    if (tries === maxTries)
      throw new Error(`the lock file changed ${maxTries} times while this process tried to take it`);
    removeStale(path, requireGone);
  }
}

function tryLink(aside: string, path: string): boolean {
  try {
    linkSync(aside, path);
    return true;
  } catch (error) {
    if (errorCode(error) === "EEXIST") return false;
    throw error;
  }
}

/** Removes a lock whose owner is gone; rejects where it is not. */
function removeStale(path: string, requireGone: (owner: Owner) => void): void {
  const text = readText(path);
  // Nothing to read although there is something: a symbolic link to nowhere. It says nothing, and goes as such a lock does.
  if (text === undefined && !lstatSync(path, { throwIfNoEntry: false })) return;
  const owner = ownerOf(text ?? "");
  if (owner) requireGone(owner);
  const taken = `${path}.${randomUUID()}.stale`;
  try {
    renameSync(path, taken);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return;
    throw error;
  }
  // Between the look and the move another process may have taken over: then this is its lock, and goes back.
  if (readText(taken) !== text) tryLink(taken, path);
  rmSync(taken);
}

/** Rejects an owner that may be alive. */
function requireGone(
  path: string,
  owner: Owner,
  folderLock: FolderLock | undefined,
  { heardMs, limitMs }: Silence,
): void {
  const state = stateOfOwner(path, owner, folderLock);
  if (state === "gone") return;
  if (state === "running") throw heldBy(path, owner);
  const [silentMs, maxMs] = [heardMs(), limitMs(silenceMs)];
  if (silentMs >= maxMs) return;
  const { pid, host } = owner;
  throw locked(
    `${path} is held by process ${pid}${placeOf(owner)}. Its last heartbeat was ${formatDuration(silentMs)} ago. ` +
      `After ${formatDuration(maxMs)} without a heartbeat, the next start takes over the lock. If the process has ended, remove ${path}.`,
    { path, pid, host },
  );
}

/** An owner that had the folder's lock is gone if we have it now: on one kernel, or on a disk that no other one writes. */
function stateOfOwner(path: string, owner: Owner, folderLock: FolderLock | undefined): ProcessState {
  const isSameKernel = owner.host === hostname() && owner.boot === readBoot();
  if (folderLock && owner.isFolderLocked && (isSameKernel || isOnLocalDisk(join(path, "..")))) return "gone";
  return stateOfProcess(owner);
}

function heldBy(path: string, owner: Owner | undefined): HoldfastError {
  const who = owner
    ? `process ${owner.pid}${stateOfProcess(owner) === "running" ? "" : placeOf(owner)}`
    : "another process";
  return locked(
    `${path} is held by ${who}. Wait for it or stop it, or give this run another folder.`,
    owner ? { path, pid: owner.pid, host: owner.host } : { path },
  );
}

function placeOf({ host }: Owner): string {
  return host === hostname()
    ? " in another container, or on another machine with the same host name"
    : ` on ${host}`;
}

function locked(message: string, numbers: HoldfastError["numbers"]): HoldfastError {
  return new HoldfastError("RUN_LOCKED", message, { numbers });
}

function ownerAt(path: string): Owner | undefined {
  return ownerOf(readText(path) ?? "");
}

/** Undefined for a lock that says nothing: no process of ours leaves one. */
function ownerOf(text: string): Owner | undefined {
  try {
    const { pid, host, startTicks, boot, pidNamespace, isFolderLocked } = fromJson(lockName, text);
    if (typeof pid !== "number" || typeof host !== "string") return undefined;
    return {
      ...{ pid, host, isFolderLocked: isFolderLocked === true },
      startTicks: typeof startTicks === "number" ? startTicks : undefined,
      boot: typeof boot === "string" ? boot : undefined,
      pidNamespace: typeof pidNamespace === "string" ? pidNamespace : undefined,
    };
  } catch {
    return undefined;
  }
}

function readText(path: string): string | undefined {
  try {
    // A pipe would never be read to its end.
    if (!statSync(path).isFile()) throw new Error("It is not a plain file. Remove it");
    return readFileSync(path, "utf8");
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw fileError(`${path} can't be read`, path, error);
  }
}
