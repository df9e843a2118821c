/** Kernels and GEMMs whose operands are bf16 instead of f32. */

import type { ColumnKernel, InputDtype, RowKernel } from "../../ir/index.js";
import type { BufferSlice, GemmCall } from "../program/program.js";

/** The dtype that replaces f32. */
export const narrow = "bf16";

/** The bias stays f32. */
export function narrowProblem(problem: GemmCall["problem"]): GemmCall["problem"] {
  return { ...problem, resultDtype: narrow, ...(problem.bias && { biasDtype: "f32" }) };
}

const known = new WeakMap<RowKernel | ColumnKernel, Map<string, RowKernel | ColumnKernel>>();

/**
 * A kernel that loads some inputs, and stores some elements, as bf16. Compiled code is cached by kernel identity, so each variant is made
 * once.
 */
export function narrowKernel<K extends RowKernel | ColumnKernel>(
  kernel: K,
  operands: readonly BufferSlice[],
  isNarrow: (slice: BufferSlice) => boolean,
): K {
  const isNarrowAt = (index: number): boolean => {
    const slice = operands[index];
    return slice !== undefined && isNarrow(slice);
  };
  const inputs = kernel.inputs.map((dtype, index): InputDtype => (isNarrowAt(index) ? narrow : dtype));
  const outputs = kernel.outputs.map((output, index) =>
    typeof output === "object" && output.per === "element" && isNarrowAt(inputs.length + index)
      ? { ...output, dtype: narrow }
      : output,
  );
  const variants = (known.get(kernel) as Map<string, K> | undefined) ?? new Map<string, K>();
  known.set(kernel, variants);
  const key = [
    ...inputs,
    ...outputs.map((output) => (typeof output === "object" ? output.dtype : output)),
  ].join();
  const variant = variants.get(key) ?? { ...kernel, inputs, outputs };
  variants.set(key, variant);
  return variant;
}
