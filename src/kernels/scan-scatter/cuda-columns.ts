/** The mapping of CUDA threads to the columns of an array [outer, length, inner]: one thread per column, coalesced. */

import type { ScanDtype } from "./element.js";

export const threads = 256;

/** The number of blocks with one thread per column. */
export function blocksForColumns(outer: number, inner: number): number {
  return Math.ceil((outer * inner) / threads);
}

/** C++: the thread's `outerIndex` and `column`; threads beyond the last column return. */
export const columnOfThread = `
  const long long columnIndex = (long long)blockIdx.x * ${threads} + threadIdx.x;
  if (columnIndex >= (long long)outer * inner) return;
  const long long outerIndex = columnIndex / inner;
  const long long column = columnIndex % inner;`;

/** The identity of addition: -0 for floats, because -0 + 0 would be 0. */
export const zero = { f32: "-0.0f", f64: "-0.0", i32: "0", i64: "0" } as const satisfies Record<
  ScanDtype,
  string
>;
