/** Safetensors on disk. A file is read whole; a save is there whole or not at all. */

import { randomUUID } from "node:crypto";
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { HoldfastError } from "../../errors/index.js";
import { GiB } from "../../units/index.js";
import type { SafetensorsFile, StoredTensor } from "./format.js";
import { readSafetensors } from "./read.js";
import { layOut } from "./write.js";

/** The system moves at most 2 GiB a call. */
const callBytes = GiB;

/**
 * Reads a safetensors file from disk.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { loadSafetensors, saveSafetensors } from "holdfast";
 * const path = join(mkdtempSync(join(tmpdir(), "weights-")), "model.safetensors");
 * saveSafetensors(path, [{ name: "mask", dtype: "bool", shape: [2, 1], bytes: new Uint8Array([1, 0]) }]);
 * console.log(loadSafetensors(path).tensors.get("mask")?.shape.join(" × ")); // → 2 × 1
 * ```
 */
export function loadSafetensors(path: string): SafetensorsFile {
  try {
    return readSafetensors(readWhole(path));
  } catch (error) {
    throw pathError(`${path} can't be read`, path, error);
  }
}

/**
 * Writes a safetensors file to disk. It is written aside, forced to the disk and renamed, so that at every moment the
 * path has the old file or the new one, whole.
 *
 * @example
 * ```ts
 * import { mkdtempSync, readdirSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { saveSafetensors } from "holdfast";
 * const folder = mkdtempSync(join(tmpdir(), "weights-"));
 * const step = { name: "step", dtype: "i32", shape: [], bytes: new Uint8Array(4) } as const;
 * saveSafetensors(join(folder, "model.safetensors"), [step], new Map([["epoch", "3"]]));
 * console.log(readdirSync(folder).join()); // → model.safetensors
 * ```
 */
export function saveSafetensors(
  path: string,
  tensors: Iterable<StoredTensor>,
  metadata?: ReadonlyMap<string, string>,
): void {
  const pieces = layOut(tensors, metadata);
  const aside = `${path}.${randomUUID()}.part`;
  try {
    writeThrough(aside, pieces);
    renameSync(aside, path);
    syncFolder(dirname(path));
  } catch (error) {
    // Asked first: where the folder is none, rmSync would fail too and hide why.
    if (existsSync(aside)) rmSync(aside);
    throw pathError(`${path} can't be written`, path, error);
  }
}

function readWhole(path: string): Uint8Array {
  // A pipe opened without NONBLOCK would wait, maybe for ever, for somebody to write to it.
  return withFile(path, constants.O_RDONLY | constants.O_NONBLOCK, (file) => {
    const stats = fstatSync(file);
    if (!stats.isFile()) throw new Error("it is a folder, a pipe or a device, not a file");
    const bytes = new Uint8Array(stats.size);
    for (let done = 0; done < bytes.length; ) {
      const count = readSync(file, bytes, done, Math.min(callBytes, bytes.length - done), done);
      if (count === 0) throw new Error(`it shrank to ${done} of its ${bytes.length} bytes while it was read`);
      done += count;
    }
    return bytes;
  });
}

function writeThrough(path: string, pieces: readonly Uint8Array[]): void {
  withFile(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, (file) => {
    for (const piece of pieces) {
      for (let done = 0; done < piece.length; ) {
        done += writeSync(file, piece, done, Math.min(callBytes, piece.length - done));
      }
    }
    fsyncSync(file);
  });
}

/** Makes a rename last through a power cut. Windows has no such call for folders. */
function syncFolder(folder: string): void {
  if (process.platform !== "win32") withFile(folder, constants.O_RDONLY, fsyncSync);
}

function withFile<Result>(path: string, flags: number, use: (file: number) => Result): Result {
  const file = openSync(path, flags);
  try {
    return use(file);
  } finally {
    closeSync(file);
  }
}

function pathError(what: string, path: string, cause: unknown): HoldfastError {
  const isRefusal = cause instanceof HoldfastError;
  const why = cause instanceof Error ? cause.message : String(cause);
  const advice = isRefusal ? "" : " Check the path, the permissions and the room on the disk.";
  const numbers = { ...(isRefusal ? cause.numbers : {}), path };
  return new HoldfastError("BAD_FILE", `${what}: ${why}${isRefusal ? "" : "."}${advice}`, { numbers, cause });
}
