/** Printed kernels, kept under what their code follows from: the kernel's content, and how it is laid out. */

import type { KernelSource } from "../driver/index.js";

const sources = new Map<string, KernelSource>();

/** The source under a key, printed at its first use. The key names the printer too: all printers share the table. */
export function cachedSource(key: string, print: () => KernelSource): KernelSource {
  const known = sources.get(key);
  if (known) return known;
  const source = print();
  sources.set(key, source);
  return source;
}
