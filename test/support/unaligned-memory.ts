/** Step memory at addresses that an allocation never has: kernels must not assume alignment. */

import type { Runtime, Storage } from "holdfast/internals";

/** Step memory with these values, which begins this many elements after an aligned address. */
export function uploadAt(
  runtime: Runtime,
  values: ArrayBufferView & { readonly BYTES_PER_ELEMENT: number },
  offset: number,
): Storage {
  const before = offset * values.BYTES_PER_ELEMENT;
  const whole = runtime.arena.allocate(before + values.byteLength, "placed");
  const storage = before > 0 ? runtime.view(whole, before, values.byteLength) : whole;
  runtime.upload([{ source: values, target: storage }]);
  return storage;
}
