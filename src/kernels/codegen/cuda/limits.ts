/** The limits of generated kernels: counts and strides are 32-bit integers. */

import { HoldfastError } from "../../../errors/index.js";

const maxCount = 2 ** 31 - 1;

/** Rejects a launch over more rows, columns or elements than 31 bits can count. */
export function requireCountable(kernel: { readonly name: string }, count: number, unit: string): void {
  if (count <= maxCount) return;
  throw new HoldfastError(
    "BAD_SIZE",
    `Kernel "${kernel.name}" was launched over ${count} ${unit}; the limit is ${maxCount}. Split the tensor.`,
    { numbers: { count, largest: maxCount } },
  );
}

/** Returns the stride, in elements; rejects one that does not fit into 32 bits. */
export function requireStride(kernel: { readonly name: string }, stride: number): number {
  if (stride === (stride | 0)) return stride;
  throw new HoldfastError(
    "BAD_SIZE",
    `Kernel "${kernel.name}" was launched over a tensor with a stride of ${stride} elements; the limit is ${maxCount}. ` +
      "Split the tensor.",
    { numbers: { stride, largest: maxCount } },
  );
}
