/**
 * An operating system lock on a folder: flock(2) on the open folder; it needs no file. The kernel releases the lock when the
 * process ends for any reason, and enforces it across all containers of the machine. Node opens files with O_CLOEXEC, so no child
 * process keeps the lock.
 */

import { closeSync, constants, openSync, statfsSync } from "node:fs";
import { constants as system } from "node:os";
import { loadKoffi } from "../../driver/index.js";

export interface FolderLock {
  /** Does nothing the second time. */
  release(): void;
}

/** LOCK_EX and LOCK_NB of flock(2). */
const exclusive = 2;
const nonBlocking = 4;

/** Takes a folder's lock. "held": another process has it. "none": this system or this disk has no such locks. */
export function tryLockFolder(folder: string): FolderLock | "held" | "none" {
  const lock = loadFlock();
  if (!lock) return "none";
  const file = open(folder);
  if (file === undefined) return "none";
  const error = lock(file, exclusive | nonBlocking);
  if (error !== 0) close(file);
  if (error === system.errno.EWOULDBLOCK || error === system.errno.EAGAIN) return "held";
  // A network disk may not support locks on folders.
  if (error !== 0) return "none";
  let isHeld = true;
  return {
    release() {
      if (isHeld) close(file);
      isHeld = false;
    },
  };
}

/** Undefined if the folder can't be opened: the first write there reports the reason. */
function open(folder: string): number | undefined {
  try {
    return openSync(folder, constants.O_RDONLY);
  } catch {
    return undefined;
  }
}

/** The descriptor and the lock are gone even if close fails. */
function close(file: number): void {
  try {
    closeSync(file);
  } catch {
    // The lock is released.
  }
}

/** Returns the error number, or 0. */
type Flock = (file: number, operation: number) => number;

let flock: Flock | "missing" | undefined;

function loadFlock(): Flock | undefined {
  flock ??= findFlock();
  return flock === "missing" ? undefined : flock;
}

function findFlock(): Flock | "missing" {
  try {
    const koffi = loadKoffi();
    const call = koffi.load(null).func("int flock(int file, int operation)");
    return (file, operation) => {
      for (;;) {
        const error = call(file, operation) === 0 ? 0 : koffi.errno();
        if (error !== system.errno.EINTR) return error;
      }
    };
  } catch {
    return "missing";
  }
}

/** The statfs(2) types of disks that no other machine can write: ext, XFS, Btrfs, F2FS, ZFS, tmpfs, overlay. */
const localDisks: ReadonlySet<number> = new Set([
  0xef53, 0x58465342, 0x9123683e, 0xf2f52010, 0x2fc12fc1, 0x01021994, 0x794c7630,
]);

/** True if only this machine can write the folder's disk. False if unknown. */
export function isOnLocalDisk(folder: string): boolean {
  try {
    return process.platform === "linux" && localDisks.has(statfsSync(folder).type);
  } catch {
    return false;
  }
}
