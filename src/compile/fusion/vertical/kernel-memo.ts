/** Fused kernels by what they are: the same fusion gives the same object, which printed code is kept by. */

import type { RowKernel } from "../../../ir/index.js";

const known = new Map<string, RowKernel>();

/** The one kernel that is like this one, whose stages the text tells. */
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

/** Names of what became one: each once where it stands several times in a row, cut where there are too many. */
export function joinNames(names: readonly string[]): string {
  const slices = names.flatMap((name) => name.split(" + "));
  const different = slices.filter((name, index) => name !== slices[index - 1]);
  const whole = different.join(" + ");
  if (whole.length <= longestName) return whole;
  const cut = whole.slice(0, longestName - 1);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" + "), longestName / 2))} …`;
}
