/** Reads a safetensors file from its bytes. Nothing in it is trusted; the results are views of the bytes. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { foreignTensor } from "./foreign-dtypes.js";
import { dtypesByFileName, lengthBytes, type SafetensorsFile, type StoredTensor } from "./format.js";
import { checkPlacement, headerLength, parseHeader } from "./header.js";

/** Options for reading a safetensors file. */
export interface ReadOptions {
  /** Tensors to skip: their names, or a predicate. */
  readonly skip?: readonly string[] | ((name: string) => boolean);
}

export const readOptionNames: OptionNames<ReadOptions> = { skip: true };

/**
 * Reads the tensors of a safetensors file. Tensors of supported dtypes are not copied: their `bytes` is a view of
 * `bytes`. U64, U32, I16 and U16 become i32 if every value fits; F8_E4M3 and F8_E5M2 become bf16, exactly.
 * They are converted when their `bytes` is first accessed; a tensor that cannot be converted is rejected then, by name.
 * A malformed file is rejected with the code BAD_FILE.
 *
 * @example
 * ```ts
 * import { readSafetensors, viewElements, writeSafetensors } from "holdfast";
 * const bytes = new Uint8Array(new Float32Array([1, 2, 3]).buffer);
 * const file = writeSafetensors([{ name: "bias", dtype: "f32", shape: [3], bytes }]);
 *
 * const bias = readSafetensors(file).tensors.get("bias");
 * if (bias?.dtype === "f32") console.log(viewElements("f32", bias.bytes).join()); // → 1,2,3
 * console.log(readSafetensors(file, { skip: ["bias"] }).tensors.size); // → 0
 * ```
 */
export function readSafetensors(bytes: Uint8Array, options: ReadOptions = {}): SafetensorsFile {
  checkOptions("readSafetensors", options, readOptionNames);
  if (!(bytes instanceof Uint8Array)) {
    const message = "readSafetensors takes a file's bytes as a Uint8Array. For a path use loadSafetensors.";
    throw new HoldfastError("BAD_ARGUMENT", message);
  }
  const isSkipped = skipping(options);
  const dataStart = lengthBytes + headerLength(bytes, bytes.length);
  const { entries, metadata } = parseHeader(bytes.subarray(lengthBytes, dataStart));
  checkPlacement(entries, bytes.length - dataStart);
  const tensors = new Map<string, StoredTensor>();
  for (const { name, fileDtype, shape, begin, end } of entries.values()) {
    if (isSkipped(name)) continue;
    // Not subarray(), which returns a Buffer for a Buffer.
    const view = new Uint8Array(bytes.buffer, bytes.byteOffset + dataStart + begin, end - begin);
    const dtype = dtypesByFileName.get(fileDtype);
    tensors.set(
      name,
      dtype ? { name, dtype, shape, bytes: view } : foreignTensor(name, shape, fileDtype, view),
    );
  }
  return { tensors, metadata };
}

function skipping({ skip = [] }: ReadOptions): (name: string) => boolean {
  if (typeof skip === "function") return skip;
  if (Array.isArray(skip)) {
    const names = new Set<string>(skip);
    return (name) => names.has(name);
  }
  throw new HoldfastError("BAD_ARGUMENT", "skip takes a list of names, or a function of a name.");
}
