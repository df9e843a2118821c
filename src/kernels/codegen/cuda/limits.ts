/** The limits of generated kernels: counts and strides are 32-bit integers. */

import { HoldfastError } from "../../../errors/index.js";

const maxCount = 2 ** 31 - 1;

export function requireCountable(kernel: { readonly name: string }, count: number, what: string): void {
  if (count <= maxCount) return;
  throw new HoldfastError(
    "BAD_SIZE",
    `Kernel "${kernel.name}" was launched over ${count} ${what}; the limit is ${maxCount}. Split the tensor.`,
    { numbers: { count, largest: maxCount } },
  );
}

/** A stride in elements, as a kernel takes it. */
export function requireStride(kernel: { readonly name: string }, stride: number): number {
  if (stride === (stride | 0)) return stride;
  throw new HoldfastError(
    "BAD_SIZE",
    `Kernel "${kernel.name}" was launched over a tensor with a stride of ${stride} elements; the limit is ${maxCount}. ` +
      "Split the tensor.",
    { numbers: { stride, largest: maxCount } },
  );
}
