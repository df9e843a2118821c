/** The format's constants, and the record of a stored tensor. */

import { type Dtype, dtypes } from "../../ir/index.js";
import { MiB } from "../../units/index.js";

/** A tensor in a safetensors file. */
export interface StoredTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** The elements, row-major and little-endian. `viewElements` returns them as numbers. */
  readonly bytes: Uint8Array;
  /** For a converted dtype: its name in the file, and the file's bytes. */
  readonly stored?: { readonly dtype: string; readonly bytes: Uint8Array };
}

/** The contents of a file. The maps keep the header's order. */
export interface SafetensorsFile {
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly metadata: ReadonlyMap<string, string>;
}

/** The bytes before the header that hold its length. */
export const lengthBytes = 8;

/** The format's limit for a header, so that a hostile length costs nothing. */
export const headerLimit = 100_000_000;

/**
 * Limits for the names of a header and the numbers of a shape, far above any real file. Without them a hostile header
 * within the format's limit costs half a minute and gigabytes.
 */
export const nameLimit = 100_000;
export const dimensionLimit = 64;

/**
 * Limits for a whole header: numbers in shapes and data_offsets, and bytes of names, dtypes and metadata. With as many names as
 * allowed, these are 16 numbers and 167 bytes for each name. Without them a header within the limits above takes seconds to decode.
 */
export const countLimit = 16 * nameLimit;
export const textLimit = 16 * MiB;

/** The only header name that is not a tensor's. */
export const metadataName = "__metadata__";

/** Dtypes by the format's names, in file order: the widest first keeps all aligned. */
export const dtypesByFileName: ReadonlyMap<string, Dtype> = new Map([
  ["F64", "f64"],
  ["I64", "i64"],
  ["F32", "f32"],
  ["I32", "i32"],
  ["BF16", "bf16"],
  ["F16", "f16"],
  ["I8", "i8"],
  ["U8", "u8"],
  ["BOOL", "bool"],
]);

/** The bytes of a tensor; undefined if the shape is invalid or the size is not a safe integer. */
export function tensorBytes(dtype: Dtype, shape: readonly number[]): number | undefined {
  return arrayBytes(dtypes[dtype].bytes, shape);
}

/** The same for elements of `elementBytes` bytes. */
export function arrayBytes(elementBytes: number, shape: readonly number[]): number | undefined {
  let size = elementBytes;
  for (const dimension of shape) {
    if (!Number.isSafeInteger(dimension) || dimension < 0) return undefined;
    size *= dimension;
    if (!Number.isSafeInteger(size)) return undefined;
  }
  return size;
}

/** True if UTF-8 can represent the text: an unpaired surrogate has no encoding, though JSON has an escape for it. */
export function isUtf8Text(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}
