/** Fused kernels by structure: equal fusions share one kernel object, by which compiled code is cached. */

import type { RowKernel } from "../../../ir/index.js";

const known = new Map<string, RowKernel>();

/** The shared kernel object that equals this one; `structure` is the text of its stages. */
export function theKernel(kernel: RowKernel, structure: string): RowKernel {
  const { name, inputs, outputs, scalars } = kernel;
  const stored = outputs.map(({ dtype, per }) => `${dtype}/${per}`);
  const key = [name, inputs.join(), stored.join(), scalars.join(), structure].join("\n");
  const same = known.get(key);
  if (same) return same;
  known.set(key, kernel);
  return kernel;
}

const longestName = 60;

/** The names of fused calls: repeats in a row count once, and long lists are cut. */
export function joinNames(names: readonly string[]): string {
  const slices = names.flatMap((name) => name.split(" + "));
  const different = slices.filter((name, index) => name !== slices[index - 1]);
  const whole = different.join(" + ");
  if (whole.length <= longestName) return whole;
  const cut = whole.slice(0, longestName - 1);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" + "), longestName / 2))} …`;
}
