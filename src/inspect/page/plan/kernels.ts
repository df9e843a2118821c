/** The calls of a step grouped by kernel, with time and bytes. */

import type { CallReport } from "../wire.js";

export interface KernelRow {
  readonly kernel: string;
  readonly kind: string;
  readonly calls: number;
  /** Microseconds of all its calls; undefined if not measured. */
  readonly us: number | undefined;
  /** Of the measured time of all kernels. */
  readonly share: number | undefined;
  readonly bytes: number;
}

/** One row per kernel, sorted by time, then by bytes. */
export function kernelRows(calls: readonly CallReport[]): KernelRow[] {
  const sums = new Map<string, { kind: string; calls: number; us: number | undefined; bytes: number }>();
  for (const { kernel, kind, us, readBytes, writtenBytes } of calls) {
    const sum = sums.get(kernel) ?? { kind, calls: 0, us: undefined, bytes: 0 };
    sum.calls++;
    sum.bytes += readBytes + writtenBytes;
    if (us !== undefined) sum.us = (sum.us ?? 0) + us;
    sums.set(kernel, sum);
  }
  const totalUs = [...sums.values()].reduce((total, { us }) => total + (us ?? 0), 0);
  return [...sums]
    .map(([kernel, sum]) => ({
      kernel,
      ...sum,
      share: sum.us === undefined || totalUs === 0 ? undefined : sum.us / totalUs,
    }))
    .sort((a, b) => (b.us ?? -1) - (a.us ?? -1) || b.bytes - a.bytes);
}

/** The total time of a step's calls, and the time of copies; undefined if not measured. */
export function sumTimes(
  calls: readonly CallReport[],
): { readonly us: number; readonly copiesUs: number } | undefined {
  if (!calls.some(({ us }) => us !== undefined)) return undefined;
  const sumOf = (subset: readonly CallReport[]): number => subset.reduce((sum, { us = 0 }) => sum + us, 0);
  const isCopy = ({ kind, kernel }: CallReport): boolean =>
    kind === "copy" || kind === "fill" || /^(indexed )?cop(y|ies)$/.test(kernel);
  return { us: sumOf(calls), copiesUs: sumOf(calls.filter(isCopy)) };
}
