/** A device function of the generated CUDA C++, kept in a table by its name. */

export interface Intrinsic {
  /** Other functions of the tables that its code calls. */
  readonly needs?: readonly string[];
  readonly code: string;
}

/** The specifiers of every device function: internal linkage, always inlined. */
export const device = "static __device__ __forceinline__";

/**
 * Wraps the PTX wrappers of a kernel. The CUDA emulator of the tests defines HOLDFAST_EMULATOR and its own functions of the
 * same names, so that kernels which use PTX run on a CPU.
 */
export function onlyOnDevice(code: string): string {
  return `#ifndef HOLDFAST_EMULATOR\n${code}\n#endif`;
}
