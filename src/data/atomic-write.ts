/**
 * Files that are there whole or not at all. A write goes aside in the same folder, is forced to the disk and renamed, so that
 * at every moment the path has the old file or the new one, whatever ends the process.
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

/** The system moves at most 2 GiB a call. Less, so that a slow disk is seen to get on. */
export const callBytes = 64 * MiB;

/** Forced to the disk at a time: the whole of a large file could take longer than a stall. */
const syncBytes = 256 * MiB;

/** Writes a part of an array at the end of an open file; how many bytes it took. */
export type WriteBytes = (file: number, bytes: Uint8Array, offset: number, length: number) => number;

export interface AtomicWriteOptions {
  /**
   * Whether the write lasts through a power cut; so unless this is false. A process that is killed loses nothing either way:
   * false is for what is written often and soon written again.
   */
  readonly lasting?: boolean;
  /** The system's own unless given. */
  readonly write?: WriteBytes;
}

/** Puts a file of these pieces, or of this text, at the path. What can't be written is a BAD_FILE with the way out. */
export function writeAtomically(
  path: string,
  content: string | readonly Uint8Array[],
  { lasting = true, write = writeSync }: AtomicWriteOptions = {},
): void {
  const pieces = typeof content === "string" ? [Buffer.from(content)] : content;
  const aside = `${path}.${process.pid}-${randomUUID()}.part`;
  try {
    duringFileWork("disk-write", () => {
      writeAside(aside, pieces, lasting, write);
      renameSync(aside, path);
      if (lasting) syncFolder(dirname(path));
    });
  } catch (error) {
    removeAside(aside);
    throw fileError(`${path} can't be written`, path, error);
  }
}

/** Whatever fails here must not hide why the write has failed; `removeLeftovers` finds the file later. */
function removeAside(aside: string): void {
  try {
    rmSync(aside, { force: true });
  } catch {
    // It stays.
  }
}

/** The name that a file has while it is written, with the process that writes it. */
const asideName = /\.(\d+)-[0-9a-f-]{36}\.part$/;

/** Is there something at this path? Unlike `existsSync`, a disk that fails is an error, and not a no. */
export function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    // A part of the path is a file. Newer versions of Node take that for no entry themselves.
    if (codeOf(error) === "ENOTDIR") return false;
    throw asFileError(`${path} can't be looked for`, path, error);
  }
}

/** Makes a folder and those above it, where they are not there. They last through a power cut. */
export function makeFolder(path: string): void {
  try {
    makeEach(resolve(path));
  } catch (error) {
    throw fileError(`${path} can't be made`, path, error);
  }
}

/** Not by `recursive` of mkdirSync, which never comes back from a folder where none can be made, as in /proc. */
function makeEach(path: string): void {
  try {
    mkdirSync(path);
  } catch (error) {
    if (codeOf(error) === "EEXIST" && statSync(path).isDirectory()) return;
    if (codeOf(error) !== "ENOENT" || dirname(path) === path) throw error;
    makeEach(dirname(path));
    mkdirSync(path);
  }
  syncParent(path);
}

/** A parent that may not be read can't be synchronized; the folder is there all the same. */
function syncParent(path: string): void {
  try {
    syncFolder(dirname(path));
  } catch (error) {
    if (!["EACCES", "EPERM", "EINVAL"].includes(codeOf(error) ?? "")) throw error;
  }
}

/**
 * Removes what writes have left behind that a kill or a crash cut off; their names. What a living process is writing stays.
 * Call it before the first write: a file of this process counts as left behind by an earlier one of the same number.
 * With a file's name, only what writes of that file have left.
 */
export function removeLeftovers(folder: string, file = ""): readonly string[] {
  try {
    const found = readdirSync(folder).filter((name) => {
      const pid = name.startsWith(file) ? asideName.exec(name)?.[1] : undefined;
      return pid !== undefined && (Number(pid) === process.pid || !isProcessAlive(Number(pid)));
    });
    for (const name of found) rmSync(join(folder, name), { force: true });
    return found;
  } catch (error) {
    throw fileError(`${folder} can't be tidied`, folder, error);
  }
}

/** Is there a process of this number on this machine? */
export function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it is there, and another user's.
    return codeOf(error) === "EPERM";
  }
}

/** What the system's reasons mean for somebody who saves a file. */
const waysOut: Readonly<Record<string, string>> = {
  ENOSPC: "The disk is full: make room on it, or choose a folder on another.",
  EDQUOT: "The disk quota is used up: make room, or choose a folder on another disk.",
  EFBIG:
    "A file of this size is not allowed here: raise the limit with `ulimit -f`, or choose a folder on another disk.",
  EROFS: "The disk is read-only: choose a folder on another.",
  EACCES: "This user may not do that there: change the permissions, or choose another folder.",
  EPERM: "This user may not do that there: change the permissions, or choose another folder.",
  ENOENT: "Check the path: the file or its folder is not there.",
  ENOTDIR: "A part of the path is a file, not a folder: check the path.",
  EISDIR: "There is a folder where the file should be: check the path.",
  EMFILE: "Too many files are open: raise the limit with `ulimit -n`.",
  EIO: "The disk has failed: look at the system's log, and choose a folder on another.",
};

/** Says of a path what can't be done, why, and the way out; on one line. */
export function fileError(what: string, path: string, cause: unknown): HoldfastError {
  if (cause instanceof HoldfastError) {
    const numbers = { ...cause.numbers, path };
    return new HoldfastError("BAD_FILE", `${what}: ${cause.message}`, { numbers, cause });
  }
  const why = cause instanceof Error ? cause.message : String(cause);
  const wayOut = waysOut[codeOf(cause) ?? ""] ?? "Check the path, the permissions and the room on the disk.";
  return new HoldfastError("BAD_FILE", `${what}: ${why}. ${wayOut}`, { numbers: { path }, cause });
}

/** Runs a function; an error of the system's becomes a `fileError`, and one of Holdfast's own stays as it is. */
export function withFileError<Result>(what: string, path: string, body: () => Result): Result {
  try {
    return body();
  } catch (error) {
    throw asFileError(what, path, error);
  }
}

/** An error of the system's as a `fileError`; one of Holdfast's own as it is. */
export function asFileError(what: string, path: string, error: unknown): HoldfastError {
  return error instanceof HoldfastError ? error : fileError(what, path, error);
}

/** The system's name of an error, as ENOSPC. */
export function codeOf(error: unknown): string | undefined {
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

function writeAside(path: string, pieces: readonly Uint8Array[], lasting: boolean, write: WriteBytes): void {
  withFile(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, (file) => {
    let unsynced = 0;
    for (const piece of pieces) {
      for (let done = 0; done < piece.length; ) {
        const count = write(file, piece, done, Math.min(callBytes, piece.length - done));
        done += count;
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

/** Makes the names in a folder last through a power cut: new files, renames. Windows has no such call for folders. */
export function syncFolder(folder: string): void {
  if (process.platform !== "win32") withFile(folder, constants.O_RDONLY, fsyncSync);
}
