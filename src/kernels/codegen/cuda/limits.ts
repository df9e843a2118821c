/** What a printed kernel can count: threads and steps are 32-bit numbers, and some threads run past the end. */

import { HoldfastError } from "../../../errors/index.js";

const largestCount = 2 ** 31 - 1;

export function requireCountable(kernel: { readonly name: string }, count: number, what: string): void {
  if (count <= largestCount) return;
  throw new HoldfastError(
    "BAD_SIZE",
    `Kernel "${kernel.name}" was launched over ${count} ${what}, and counts to ${largestCount}. Split the tensor.`,
    { numbers: { count, largest: largestCount } },
  );
}

/** A step in elements, as a kernel takes it. */
export function requireStep(kernel: { readonly name: string }, stride: number): number {
  if (stride === (stride | 0)) return stride;
  throw new HoldfastError(
    "BAD_SIZE",
    `Kernel "${kernel.name}" was launched over a tensor with a step of ${stride} elements, and takes steps up to ` +
      `${largestCount}. Split the tensor.`,
    { numbers: { stride, largest: largestCount } },
  );
}
