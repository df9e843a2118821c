/**
 * Opens and reads regular files only. A pipe or a device must not block the reader, and no file may take more memory
 * than the caller allows.
 */

import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from "node:fs";
import { HoldfastError } from "../errors/index.js";
import { formatBytes } from "../units/index.js";

/** An open file and its fstat. The caller closes `file`. */
export interface OpenedFile {
  readonly file: number;
  readonly stats: Stats;
}

/**
 * Opens a regular file for reading. Rejects a folder, a pipe or a device with BAD_FILE. System errors are passed
 * through, so that a caller can recognize a missing file.
 */
export function openRegularFile(path: string): OpenedFile {
  // Without O_NONBLOCK, opening a pipe waits for a writer. Windows has neither the flag nor such pipes.
  const file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    const stats = fstatSync(file);
    if (stats.isFile()) return { file, stats };
    throw new HoldfastError(
      "BAD_FILE",
      `${path} is a folder, a pipe or a device. Replace it with a regular file.`,
      {
        numbers: { path },
      },
    );
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** Reads a whole regular file of at most `maxBytes`; rejects a larger one with BAD_FILE. */
export function readRegularFile(path: string, maxBytes: number): Buffer {
  const { file, stats } = openRegularFile(path);
  try {
    if (stats.size > maxBytes) {
      throw new HoldfastError(
        "BAD_FILE",
        `${path} has ${formatBytes(stats.size)}; the maximum is ${formatBytes(maxBytes)}. Remove or replace it.`,
        { numbers: { path, bytes: stats.size, maxBytes } },
      );
    }
    return readSpan(file, 0, stats.size);
  } finally {
    closeSync(file);
  }
}

/** Reads the last bytes of a regular file, and returns how many precede them. */
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

/** Reads the bytes of a file from an offset; fewer if the file ends sooner. */
export function readSpan(file: number, from: number, length: number): Buffer {
  const bytes = Buffer.alloc(Math.max(0, length));
  let bytesRead = 0;
  while (bytesRead < bytes.length) {
    const more = readSync(file, bytes, bytesRead, bytes.length - bytesRead, from + bytesRead);
    if (more === 0) break;
    bytesRead += more;
  }
  return bytes.subarray(0, bytesRead);
}
