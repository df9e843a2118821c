/**
 * The lock of a run's folder. Only one process may write there. If the system supports it, flock on the folder decides. A lock
 * file names the owner for messages and readers, and is the lock on disks without flock. The lock of a process that has ended is taken over.
 */

import { randomUUID } from "node:crypto";
import { linkSync, lstatSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { errorCode, fileError, withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { formatDuration, sleepSync } from "../../units/index.js";
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

/** A process in state "elsewhere" counts as gone after this time without a heartbeat, unless its phase has a longer limit. */
const defaultSilenceMs = 120_000;

/** The time to wait for a process that only probes the lock, or has not written its record yet. */
const maxWaitMs = 500;
const retryMs = 10;

/** Max. attempts to take the lock while other processes change it. */
const maxTries = 1000;

interface Owner extends ProcessIdentity {
  /** True if it also holds the operating system's lock on the folder. */
  readonly isFolderLocked: boolean;
}

/** For an owner in state "elsewhere": the time since its last heartbeat, and the limit for it. */
interface Silence {
  readonly sinceHeartbeatMs: () => number;
  readonly limitMs: (defaultMs: number) => number;
}

export class RunLock {
  readonly #path: string;
  /** The text of the lock file. Its token makes it unique. */
  readonly #text: string;
  readonly #folderLock: FolderLock | undefined;

  private constructor(path: string, text: string, folderLock: FolderLock | undefined) {
    this.#path = path;
    this.#text = text;
    this.#folderLock = folderLock;
  }

  /**
   * Takes the lock of a folder, or throws and names the owner. For an owner on another machine: `sinceHeartbeatMs` is the time since the
   * run's last heartbeat, and `limitMs` maps the default limit to the limit of the run's phase.
   */
  static take(
    folder: string,
    sinceHeartbeatMs: () => number,
    limitMs: (defaultMs: number) => number = (defaultMs) => defaultMs,
  ): RunLock {
    const path = join(folder, lockName);
    const temporary = `${path}.${process.pid}-${randomUUID()}.part`;
    const silence = { sinceHeartbeatMs, limitMs };
    let folderLock: FolderLock | undefined;
    try {
      folderLock = lockFolder(folder, path);
      const record = { ...identifyProcess(), isFolderLocked: folderLock !== undefined, token: randomUUID() };
      const text = toJson(lockName, record);
      writeFileSync(temporary, text, { flag: "wx" });
      takeRecord(temporary, path, (owner) => requireGone(path, owner, folderLock, silence));
      return new RunLock(path, text, folderLock);
    } catch (error) {
      folderLock?.release();
      if (error instanceof HoldfastError) throw error;
      throw fileError(`${path} can't be taken`, path, error);
    } finally {
      removeTemporary(temporary);
    }
  }

  /** Throws if a living process holds the folder's lock. Writes nothing. The arguments are those of `take`. */
  static requireFree(
    folder: string,
    sinceHeartbeatMs: () => number,
    limitMs: (defaultMs: number) => number = (defaultMs) => defaultMs,
  ): void {
    const path = join(folder, lockName);
    const folderLock = lockFolder(folder, path);
    try {
      const owner = ownerAt(path);
      if (owner) requireGone(path, owner, folderLock, { sinceHeartbeatMs, limitMs });
    } finally {
      folderLock?.release();
    }
  }

  /** Releases a folder that any thread of this process has locked. For a process that is about to end. */
  static releaseForProcess(folder: string): void {
    const path = join(folder, lockName);
    const owner = ownerAt(path);
    const current = identifyProcess();
    const isThisProcess =
      owner?.pid === current.pid && owner.host === current.host && owner.startTicks === current.startTicks;
    if (isThisProcess) removeLock(path);
  }

  /** Releases the folder. Does nothing if it is released or another process has taken it over. */
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

/** A file that can't be removed stays; the next writer removes it. */
function removeTemporary(temporary: string): void {
  try {
    rmSync(temporary, { force: true });
  } catch {
    // The next writer removes it.
  }
}

/** The system's lock on a folder; undefined if the system has none. Throws if a process holds it. */
function lockFolder(folder: string, path: string): FolderLock | undefined {
  for (let waitedMs = 0; ; waitedMs += retryMs) {
    const lock = tryLockFolder(folder);
    if (lock !== "held") return lock === "none" ? undefined : lock;
    const owner = ownerAt(path);
    const isNamed = owner !== undefined && stateOfProcess(owner) === "running";
    if (isNamed || waitedMs >= maxWaitMs) throw heldBy(path, owner);
    sleepSync(retryMs);
  }
}

/** Moves the record into place. Removes a stale lock there if `requireGone` accepts it. */
function takeRecord(temporary: string, path: string, requireGone: (owner: Owner) => void): void {
  // A link appears with its complete text, or fails if another lock exists: no reader sees half a lock.
  for (let tries = 0; !tryLink(temporary, path); tries++) {
    if (tries === maxTries)
      throw new Error(`the lock file changed ${maxTries} times while this process tried to take it`);
    removeStale(path, requireGone);
  }
}

function tryLink(source: string, path: string): boolean {
  try {
    linkSync(source, path);
    return true;
  } catch (error) {
    if (errorCode(error) === "EEXIST") return false;
    throw error;
  }
}

/** Removes a lock whose owner is gone. Throws if the owner may be alive. */
function removeStale(path: string, requireGone: (owner: Owner) => void): void {
  const text = readText(path);
  // A dangling symbolic link exists but has no text. It is removed like a lock without an owner.
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
  // Another process may have taken over between the read and the move: then this is its lock, and it goes back.
  if (readText(taken) !== text) tryLink(taken, path);
  rmSync(taken);
}

/** Throws if the owner may be alive. */
function requireGone(
  path: string,
  owner: Owner,
  folderLock: FolderLock | undefined,
  { sinceHeartbeatMs, limitMs }: Silence,
): void {
  const state = stateOfOwner(path, owner, folderLock);
  if (state === "gone") return;
  if (state === "running") throw heldBy(path, owner);
  const [silentMs, maxMs] = [sinceHeartbeatMs(), limitMs(defaultSilenceMs)];
  if (silentMs >= maxMs) return;
  const { pid, host } = owner;
  throw lockedError(
    `${path} is held by process ${pid}${locationOf(owner)}. Its last heartbeat was ${formatDuration(silentMs)} ago. ` +
      `After ${formatDuration(maxMs)} without a heartbeat, the next start takes over the lock. If the process has ended, remove ${path}.`,
    { path, pid, host },
  );
}

/** If this process holds the folder's lock, the former owner is gone: it ran on the same kernel, or only this kernel writes the disk. */
function stateOfOwner(path: string, owner: Owner, folderLock: FolderLock | undefined): ProcessState {
  const isSameKernel = owner.host === hostname() && owner.boot === readBoot();
  if (folderLock && owner.isFolderLocked && (isSameKernel || isOnLocalDisk(join(path, "..")))) return "gone";
  return stateOfProcess(owner);
}

function heldBy(path: string, owner: Owner | undefined): HoldfastError {
  const holder = owner
    ? `process ${owner.pid}${stateOfProcess(owner) === "running" ? "" : locationOf(owner)}`
    : "another process";
  return lockedError(
    `${path} is held by ${holder}. Wait for it, stop it, or use another folder for this run.`,
    owner ? { path, pid: owner.pid, host: owner.host } : { path },
  );
}

function locationOf({ host }: Owner): string {
  return host === hostname()
    ? " in another container, or on another machine with the same host name"
    : ` on ${host}`;
}

function lockedError(message: string, numbers: HoldfastError["numbers"]): HoldfastError {
  return new HoldfastError("RUN_LOCKED", message, { numbers });
}

function ownerAt(path: string): Owner | undefined {
  return ownerOf(readText(path) ?? "");
}

/** Undefined for a lock without an owner. Holdfast never writes such a lock. */
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
    // Reading a pipe would never end.
    if (!statSync(path).isFile()) throw new Error("It is not a plain file. Remove it");
    return readFileSync(path, "utf8");
  } catch (error) {
    if (errorCode(error) === "ENOENT") return undefined;
    throw fileError(`${path} can't be read`, path, error);
  }
}
