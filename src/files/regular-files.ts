/**
 * Opens and reads regular files only. A pipe or a device under a file's name must not block the reader, and no file may take
 * more memory than the caller allows.
 */

import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from "node:fs";
import { HoldfastError } from "../errors/index.js";
import { formatBytes } from "../units/index.js";

/** An open file and what fstat said of it. The caller closes `file`. */
export interface OpenedFile {
  readonly file: number;
  readonly stats: Stats;
}

/**
 * Opens a regular file for reading. A folder, a pipe or a device is rejected with BAD_FILE. Errors of the system stay as they
 * are, so that a caller can tell a missing file from others.
 */
export function openRegularFile(path: string): OpenedFile {
  // Without O_NONBLOCK, opening a pipe waits for a writer. Windows has neither the flag nor such pipes.
  const file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    const stats = fstatSync(file);
    if (stats.isFile()) return { file, stats };
    throw new HoldfastError(
      "BAD_FILE",
      `${path} is a folder, a pipe or a device. Put a regular file there.`,
      {
        numbers: { path },
      },
    );
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** Reads a whole regular file of at most `maxBytes`; a larger one is rejected with BAD_FILE. */
export function readRegularFile(path: string, maxBytes: number): Buffer {
  const { file, stats } = openRegularFile(path);
  try {
    if (stats.size > maxBytes) {
      throw new HoldfastError(
        "BAD_FILE",
        `${path} has ${formatBytes(stats.size)}; at most ${formatBytes(maxBytes)} are read. Remove or replace it.`,
        { numbers: { path, bytes: stats.size, maxBytes } },
      );
    }
    return readSpan(file, 0, stats.size);
  } finally {
    closeSync(file);
  }
}

/** The last bytes of a regular file, and how many stand before them. */
export function readTail(
  path: string,
  maxBytes: number,
): { readonly bytes: Buffer; readonly before: number } {
  const { file, stats } = openRegularFile(path);
  try {
    const before = Math.max(0, stats.size - maxBytes);
    return { bytes: readSpan(file, before, stats.size - before), before };
  } finally {
    closeSync(file);
  }
}

/** The bytes of a file from an offset on; fewer where the file ends sooner. */
export function readSpan(file: number, from: number, length: number): Buffer {
  const bytes = Buffer.alloc(Math.max(0, length));
  let done = 0;
  while (done < bytes.length) {
    const more = readSync(file, bytes, done, bytes.length - done, from + done);
    if (more === 0) break;
    done += more;
  }
  return bytes.subarray(0, done);
}
