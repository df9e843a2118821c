/** Views raw bytes as typed elements. */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes, type ElementArray } from "./dtypes.js";

/** Any of the table's array constructors, over any memory. */
type ElementConstructor = new (buffer: ArrayBufferLike, byteOffset: number, length: number) => ElementArray;

/**
 * A typed array over a tensor's bytes: the same memory if the bytes are aligned for the dtype, a copy if not. 16-bit floats are
 * returned as bits.
 *
 * @example
 * ```ts
 * import { viewElements } from "holdfast";
 * const bytes = new Uint8Array([0, 0, 128, 63, 0, 0, 0, 64]);
 * console.log(viewElements("f32", bytes).join()); // → 1,2
 * console.log(viewElements("bf16", bytes).length); // → 4
 * ```
 */
export function viewElements<D extends Dtype>(dtype: D, bytes: Uint8Array): ElementArray<D> {
  const elementBytes = dtypes[dtype].bytes;
  if (bytes.length % elementBytes !== 0) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${bytes.length} bytes are not a whole number of ${dtype} elements. Pass a multiple of ${elementBytes} bytes.`,
      { numbers: { bytes: bytes.length, elementBytes, dtype } },
    );
  }
  // A typed array needs an aligned start; the tensors of a file may begin anywhere.
  const aligned = bytes.byteOffset % elementBytes === 0 ? bytes : new Uint8Array(bytes);
  const array: ElementConstructor = dtypes[dtype].array;
  return new array(aligned.buffer, aligned.byteOffset, bytes.length / elementBytes) as ElementArray<D>;
}
