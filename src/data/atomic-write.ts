/**
 * Atomic file writes. A write goes to a temporary file in the same folder, is synced to the disk and renamed. At every
 * moment the path has the old file or the new one, even if the process is killed.
 */

import { randomUUID } from "node:crypto";
import {
  closeSync,
  constants,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { HoldfastError } from "../errors/index.js";
import { beat, duringFileWork, MiB } from "../units/index.js";

/** The system writes at most 2 GiB per call. Smaller calls show progress on a slow disk. */
export const callBytes = 64 * MiB;

/** Synced at a time: syncing a whole large file could take longer than the stall limit. */
const syncBytes = 256 * MiB;

/** Writes bytes of an array to the end of an open file; returns how many. */
export type WriteBytes = (file: number, bytes: Uint8Array, offset: number, length: number) => number;

export interface AtomicWriteOptions {
  /**
   * True if the write must survive a power cut (default). A killed process loses nothing either way: false is for files
   * that are written often.
   */
  readonly lasting?: boolean;
  /** Default: the system's. */
  readonly write?: WriteBytes;
}

/** A file that is written and synced under a temporary name. */
export interface PreparedWrite {
  /** Gives the file its name, and replaces an older one. */
  commit(): void;
  /** Removes it, if it was not committed. */
  discard(): void;
}

/** Writes a file of these chunks, or of this text, at the path. A failure is a BAD_FILE error with advice. */
export function writeAtomically(
  path: string,
  content: string | Iterable<Uint8Array>,
  options: AtomicWriteOptions = {},
): void {
  prepareWrite(path, content, options).commit();
}

/** The first half of an atomic write, so that several files can be written before the first gets its name. */
export function prepareWrite(
  path: string,
  content: string | Iterable<Uint8Array>,
  { lasting = true, write = writeSync }: AtomicWriteOptions = {},
): PreparedWrite {
  const chunks = typeof content === "string" ? [Buffer.from(content)] : content;
  const temporaryPath = `${path}.${process.pid}-${randomUUID()}.part`;
  const attempt = (body: () => void): void => {
    try {
      duringFileWork("disk-write", body);
    } catch (error) {
      removeTemporary(temporaryPath);
      throw fileError(`${path} can't be written`, path, error);
    }
  };
  attempt(() => writeTemporary(temporaryPath, chunks, lasting, write));
  return {
    commit: () =>
      attempt(() => {
        renameSync(temporaryPath, path);
        if (lasting) syncFolder(dirname(path));
      }),
    discard: () => removeTemporary(temporaryPath),
  };
}

/** A failure here must not hide why the write failed; `removeLeftovers` finds the file later. */
function removeTemporary(aside: string): void {
  try {
    rmSync(aside, { force: true });
  } catch {
    // The file stays.
  }
}

/** The name of a temporary file, with the process id of its writer. */
const temporaryName = /\.(\d+)-[0-9a-f-]{36}\.part$/;

/** True if the path exists. Unlike `existsSync`, throws if the disk fails. */
export function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    // A component of the path is a file. Newer versions of Node report this as a missing entry.
    if (errorCode(error) === "ENOTDIR") return false;
    throw asFileError(`${path} cannot be accessed`, path, error);
  }
}

/** Creates a folder and its missing parents. They survive a power cut. */
export function makeFolder(path: string): void {
  try {
    makeEach(resolve(path));
  } catch (error) {
    throw fileError(`${path} can't be created`, path, error);
  }
}

/** Not with `recursive` of mkdirSync, which never returns in a folder where none can be created, such as /proc. */
function makeEach(path: string): void {
  try {
    mkdirSync(path);
  } catch (error) {
    if (errorCode(error) === "EEXIST" && statSync(path).isDirectory()) return;
    if (errorCode(error) !== "ENOENT" || dirname(path) === path) throw error;
    makeEach(dirname(path));
    mkdirSync(path);
  }
  syncParent(path);
}

/** A parent that may not be read cannot be synced; the folder exists all the same. */
function syncParent(path: string): void {
  try {
    syncFolder(dirname(path));
  } catch (error) {
    if (!["EACCES", "EPERM", "EINVAL"].includes(errorCode(error) ?? "")) throw error;
  }
}

/**
 * Removes temporary files of interrupted writes and returns their names. Files of a running process stay. Call it
 * before the first write: a temporary file with this process's id counts as left by an earlier process. With a file's
 * name, only that file's.
 */
export function removeLeftovers(folder: string, file = ""): readonly string[] {
  try {
    const leftovers = readdirSync(folder).filter((name) => {
      const pid = name.startsWith(file) ? temporaryName.exec(name)?.[1] : undefined;
      return pid !== undefined && (Number(pid) === process.pid || !isProcessAlive(Number(pid)));
    });
    for (const name of leftovers) rmSync(join(folder, name), { force: true });
    return leftovers;
  } catch (error) {
    throw fileError(`${folder} can't be cleaned up`, folder, error);
  }
}

/** True if a process with this id runs on this machine. */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it runs, as another user.
    return errorCode(error) === "EPERM";
  }
}

/** What the system's error codes mean for a user who saves a file. */
const advices: Readonly<Record<string, string>> = {
  ENOSPC: "The disk is full: free some space, or choose a folder on another disk.",
  EDQUOT: "The disk quota is used up: free some space, or choose a folder on another disk.",
  EFBIG:
    "A file of this size is not allowed here: raise the limit with `ulimit -f`, or choose a folder on another disk.",
  EROFS: "The disk is read-only: choose a folder on another disk.",
  EACCES: "This user lacks the permission: change the permissions, or choose another folder.",
  EPERM: "This user lacks the permission: change the permissions, or choose another folder.",
  ENOENT: "Check the path: the file or its folder does not exist.",
  ENOTDIR: "Check the path: a component of it is a file, not a folder.",
  EISDIR: "Check the path: it is a folder, not a file.",
  EMFILE: "Too many files are open: raise the limit with `ulimit -n`.",
  EIO: "The disk has failed: see the system's log, and choose a folder on another disk.",
};

/** An error about a path, on one line: the failure, its cause, and advice. */
export function fileError(what: string, path: string, cause: unknown): HoldfastError {
  if (cause instanceof HoldfastError) {
    const numbers = { ...cause.numbers, path };
    return new HoldfastError("BAD_FILE", `${what}: ${cause.message}`, { numbers, cause });
  }
  const why = cause instanceof Error ? cause.message : String(cause);
  const advice =
    advices[errorCode(cause) ?? ""] ?? "Check the path, the permissions and the free space on the disk.";
  return new HoldfastError("BAD_FILE", `${what}: ${why}. ${advice}`, { numbers: { path }, cause });
}

/** Runs a function; turns a system error into a `fileError` and passes a HoldfastError through. */
export function withFileError<Result>(what: string, path: string, body: () => Result): Result {
  try {
    return body();
  } catch (error) {
    throw asFileError(what, path, error);
  }
}

/** Turns a system error into a `fileError`; returns a HoldfastError unchanged. */
export function asFileError(what: string, path: string, error: unknown): HoldfastError {
  return error instanceof HoldfastError ? error : fileError(what, path, error);
}

/** The system's name of an error, such as ENOSPC. */
export function errorCode(error: unknown): string | undefined {
  const code: unknown = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : undefined;
}

export function withFile<Result>(path: string, flags: number, use: (file: number) => Result): Result {
  const file = openSync(path, flags);
  try {
    return use(file);
  } finally {
    closeSync(file);
  }
}

function writeTemporary(
  path: string,
  chunks: Iterable<Uint8Array>,
  lasting: boolean,
  write: WriteBytes,
): void {
  withFile(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, (file) => {
    let unsynced = 0;
    for (const chunk of chunks) {
      for (let written = 0; written < chunk.length; ) {
        const count = write(file, chunk, written, Math.min(callBytes, chunk.length - written));
        written += count;
        unsynced += count;
        beat();
        if (!lasting || unsynced < syncBytes) continue;
        fsyncSync(file);
        unsynced = 0;
      }
    }
    if (lasting) fsyncSync(file);
  });
}

/** Makes new names and renames in a folder survive a power cut. Windows has no such call. */
export function syncFolder(folder: string): void {
  if (process.platform !== "win32") withFile(folder, constants.O_RDONLY, fsyncSync);
}
