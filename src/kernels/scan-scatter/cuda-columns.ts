/** How CUDA threads share the columns of an array [outer, length, inner]: one each, as they lie in memory. */

import type { WalkDtype } from "./element.js";

export const threads = 256;

/** How many blocks have a thread for every column. */
export function blocksForColumns(outer: number, inner: number): number {
  return Math.ceil((outer * inner) / threads);
}

/** The thread's own `outerIndex` and `column`, of `outer` and `inner`; threads with none leave. */
export const columnOfThread = `
  const long long place = (long long)blockIdx.x * ${threads} + threadIdx.x;
  if (place >= (long long)outer * inner) return;
  const long long outerIndex = place / inner;
  const long long column = place % inner;`;

/** What changes no value that it is added to: -0 where there is one, for 0 would make 0 of it. */
export const nothing = { f32: "-0.0f", f64: "-0.0", i32: "0" } as const satisfies Record<WalkDtype, string>;
