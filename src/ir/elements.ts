/** Looks at raw bytes as the elements that they hold. */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes, type ElementArray } from "./dtypes.js";

/** The table keeps each array's own constructor; here any of them, over any memory. */
type ElementConstructor = new (buffer: ArrayBufferLike, byteOffset: number, length: number) => ElementArray;

/**
 * The elements of a tensor's bytes, in the array of its dtype: the same memory where the bytes are aligned for
 * it, a copy where they are not. Half floats come as their bits.
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
      `${bytes.length} bytes are no whole number of ${dtype} elements, which take ${elementBytes} each. Give a multiple of ${elementBytes}.`,
      { numbers: { bytes: bytes.length, elementBytes, dtype } },
    );
  }
  // A typed array can't begin at an address that its elements don't divide; a file's tensors may lie anywhere.
  const aligned = bytes.byteOffset % elementBytes === 0 ? bytes : new Uint8Array(bytes);
  const array: ElementConstructor = dtypes[dtype].array;
  return new array(aligned.buffer, aligned.byteOffset, bytes.length / elementBytes) as ElementArray<D>;
}
