/** The format's fixed names and figures, and the record of a stored tensor. */

import { type Dtype, dtypes } from "../../ir/index.js";

/** A tensor in a safetensors file. */
export interface StoredTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** The elements, row-major and little-endian. `viewElements` shows them as numbers. */
  readonly bytes: Uint8Array;
  /** Where a file has a dtype that is none of ours: its name there, and the bytes as they lie in the file. */
  readonly stored?: { readonly dtype: string; readonly bytes: Uint8Array };
}

/** What a file holds. The maps keep the header's order. */
export interface SafetensorsFile {
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly metadata: ReadonlyMap<string, string>;
}

/** The bytes in front of the header that hold its length. */
export const lengthBytes = 8;

/** What the format allows a header, so that a hostile length costs nothing. */
export const headerLimit = 100_000_000;

/**
 * How many names a header may list, and how many numbers a shape. Both are our own and far above any real file; without
 * them a hostile header within the format's limit costs half a minute and gigabytes.
 */
export const nameLimit = 250_000;
export const dimensionLimit = 64;

/** The one name in a header that is no tensor's. */
export const metadataName = "__metadata__";

/** Our dtypes by the format's names, in the order in which a file holds them: the widest first keeps all aligned. */
export const dtypesByFileName: ReadonlyMap<string, Dtype> = new Map([
  ["F64", "f64"],
  ["F32", "f32"],
  ["I32", "i32"],
  ["BF16", "bf16"],
  ["F16", "f16"],
  ["U8", "u8"],
  ["BOOL", "bool"],
]);

/** The bytes that a tensor takes; undefined where the shape is none, or the count is more than a number can hold. */
export function sizeOf(dtype: Dtype, shape: readonly number[]): number | undefined {
  return sizeOfElements(dtypes[dtype].bytes, shape);
}

/** The same for elements of so many bytes. */
export function sizeOfElements(elementBytes: number, shape: readonly number[]): number | undefined {
  let size = elementBytes;
  for (const dimension of shape) {
    if (!Number.isSafeInteger(dimension) || dimension < 0) return undefined;
    size *= dimension;
    if (!Number.isSafeInteger(size)) return undefined;
  }
  return size;
}

/** Whether UTF-8 can hold a text: half a surrogate pair has no form there, though JSON has an escape for it. */
export function isUtf8Text(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}
