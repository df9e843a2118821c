/** The calls of a step taken together by kernel: what each costs and moves. */

import type { CallReport } from "../wire.js";

export interface KernelRow {
  readonly kernel: string;
  readonly kind: string;
  readonly times: number;
  /** Microseconds of all its calls; undefined where none was measured. */
  readonly us: number | undefined;
  /** Of the measured time of all kernels. */
  readonly share: number | undefined;
  readonly bytes: number;
}

/** One row a kernel, the longest first, then the one that moves most. */
export function kernelRows(calls: readonly CallReport[]): KernelRow[] {
  const sums = new Map<string, { kind: string; times: number; us: number | undefined; bytes: number }>();
  for (const { kernel, kind, us, readBytes, writtenBytes } of calls) {
    const sum = sums.get(kernel) ?? { kind, times: 0, us: undefined, bytes: 0 };
    sum.times++;
    sum.bytes += readBytes + writtenBytes;
    if (us !== undefined) sum.us = (sum.us ?? 0) + us;
    sums.set(kernel, sum);
  }
  const whole = [...sums.values()].reduce((total, { us }) => total + (us ?? 0), 0);
  return [...sums]
    .map(([kernel, sum]) => ({
      kernel,
      ...sum,
      share: sum.us === undefined || whole === 0 ? undefined : sum.us / whole,
    }))
    .sort((a, b) => (b.us ?? -1) - (a.us ?? -1) || b.bytes - a.bytes);
}

/** What a step's calls take together, and what of it only moves bytes; undefined where nothing was measured. */
export function timeOfPhases(
  calls: readonly CallReport[],
): { readonly us: number; readonly copiesUs: number } | undefined {
  if (!calls.some(({ us }) => us !== undefined)) return undefined;
  const sumOf = (some: readonly CallReport[]): number => some.reduce((sum, { us = 0 }) => sum + us, 0);
  const isCopy = ({ kind, kernel }: CallReport): boolean =>
    kind === "copy" || kind === "fill" || /^(indexed )?cop(y|ies)$/.test(kernel);
  return { us: sumOf(calls), copiesUs: sumOf(calls.filter(isCopy)) };
}
