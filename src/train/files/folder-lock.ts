/**
 * A lock of the operating system on a folder: flock(2) on the open folder, so no file is written for it. The kernel
 * releases it when the process ends, however that ends, and holds it against all containers of the machine. Node closes the files
 * that it opens in programs that it starts, so no child keeps the lock.
 */

import { closeSync, constants, openSync, statfsSync } from "node:fs";
import { constants as system } from "node:os";
import { loadKoffi } from "../../driver/index.js";

export interface FolderLock {
  /** Harmless when repeated. */
  release(): void;
}

/** flock's LOCK_EX and LOCK_NB. */
const exclusive = 2;
const atOnce = 4;

/** Takes a folder's lock. "held": another has it. "none": there are no such locks, on this system or this disk. */
export function tryLockFolder(folder: string): FolderLock | "held" | "none" {
  const lock = loadFlock();
  if (!lock) return "none";
  const file = open(folder);
  if (file === undefined) return "none";
  const error = lock(file, exclusive | atOnce);
  if (error !== 0) close(file);
  if (error === system.errno.EWOULDBLOCK || error === system.errno.EAGAIN) return "held";
  // A network disk may have no locks for folders.
  if (error !== 0) return "none";
  let isHeld = true;
  return {
    release() {
      if (isHeld) close(file);
      isHeld = false;
    },
  };
}

/** A folder that can't be opened is rejected by the writes there, with the reason. */
function open(folder: string): number | undefined {
  try {
    return openSync(folder, constants.O_RDONLY);
  } catch {
    return undefined;
  }
}

/** Whatever close says, the descriptor is gone, and the lock with it. */
function close(file: number): void {
  try {
    closeSync(file);
  } catch {
    // The lock is free.
  }
}

/** The call's error number, 0 for none. */
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

/** What statfs(2) says of disks that no other machine can write: ext, XFS, Btrfs, F2FS, ZFS, tmpfs, overlay. */
const localDisks: ReadonlySet<number> = new Set([
  0xef53, 0x58465342, 0x9123683e, 0xf2f52010, 0x2fc12fc1, 0x01021994, 0x794c7630,
]);

/** Is the folder on a disk of this machine alone? Where that is not known, it is not. */
export function isOnLocalDisk(folder: string): boolean {
  try {
    return process.platform === "linux" && localDisks.has(statfsSync(folder).type);
  } catch {
    return false;
  }
}
