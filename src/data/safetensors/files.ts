/** Safetensors on disk. A file is read whole; a save is atomic. */

import { constants, fstatSync, readSync } from "node:fs";
import { checkOptions } from "../../errors/index.js";
import { beat, duringFileWork } from "../../units/index.js";
import { callBytes, fileError, withFile, writeAtomically } from "../atomic-write.js";
import type { SafetensorsFile } from "./format.js";
import { type ReadOptions, readOptionNames, readSafetensors } from "./read.js";
import { listChunks, type MetadataToWrite, type TensorsToWrite } from "./write.js";

/**
 * Reads a safetensors file from disk; see `readSafetensors`.
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
export function loadSafetensors(path: string, options: ReadOptions = {}): SafetensorsFile {
  checkOptions("loadSafetensors", options, readOptionNames);
  try {
    return readSafetensors(readWhole(path), options);
  } catch (error) {
    throw fileError(`${path} can't be read`, path, error);
  }
}

/**
 * Writes a safetensors file atomically: at every moment the path has the old file or the new one, whole.
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
export function saveSafetensors(path: string, tensors: TensorsToWrite, metadata?: MetadataToWrite): void {
  writeAtomically(path, listChunks(tensors, metadata));
}

/** Reads all bytes of a file. */
export function readWhole(path: string): Uint8Array {
  // A pipe opened without NONBLOCK could wait for ever for a writer.
  const read = (file: number): Uint8Array => {
    const stats = fstatSync(file);
    if (!stats.isFile()) throw new Error("it is a folder, a pipe or a device, not a file");
    const bytes = new Uint8Array(stats.size);
    for (let bytesRead = 0; bytesRead < bytes.length; ) {
      const count = readSync(
        file,
        bytes,
        bytesRead,
        Math.min(callBytes, bytes.length - bytesRead),
        bytesRead,
      );
      if (count === 0)
        throw new Error(`it shrank to ${bytesRead} of its ${bytes.length} bytes while it was read`);
      bytesRead += count;
      beat();
    }
    return bytes;
  };
  return duringFileWork("disk-read", () => withFile(path, constants.O_RDONLY | constants.O_NONBLOCK, read));
}
