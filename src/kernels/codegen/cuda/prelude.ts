/**
 * The device functions that generated kernels call. A kernel's source contains only those it uses, because every line costs compile
 * time.
 */

import { fastMathIntrinsics } from "./intrinsics/fast-math.js";
import type { Intrinsic } from "./intrinsics/intrinsic.js";
import { mathIntrinsics } from "./intrinsics/math.js";
import { launchIntrinsics } from "./intrinsics/pdl.js";
import { philoxIntrinsics } from "./intrinsics/philox.js";
import { vecIntrinsics } from "./intrinsics/vec.js";

const entries = {
  ...{ ...vecIntrinsics, ...launchIntrinsics, ...philoxIntrinsics },
  ...{ ...mathIntrinsics, ...fastMathIntrinsics },
} satisfies Record<string, Intrinsic>;

export type PreludeName = keyof typeof entries;

/** The source of the named functions and of those they need, each once. The tables list callees before callers. */
export function preludeOf(names: ReadonlySet<PreludeName>): string {
  const table: Readonly<Record<string, Intrinsic>> = entries;
  const wanted = new Set<string>();
  for (const name of names) for (const needed of [name, ...(table[name]?.needs ?? [])]) wanted.add(needed);
  return Object.entries(table)
    .filter(([name]) => wanted.has(name))
    .map(([, { code }]) => `${code}\n\n`)
    .join("");
}
