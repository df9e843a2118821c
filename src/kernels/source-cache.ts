/** A cache of printed kernels. */

import type { KernelSource } from "../driver/index.js";

const sources = new Map<string, KernelSource>();

/** The source of a key, printed at its first use. The key contains everything that the code depends on, and the printer's name. */
export function cachedSource(key: string, print: () => KernelSource): KernelSource {
  const cached = sources.get(key);
  if (cached) return cached;
  const source = print();
  sources.set(key, source);
  return source;
}
