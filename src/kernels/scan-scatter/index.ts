/**
 * scan-scatter: prefix sums and scatterAdd along one axis of an array [outer, length, inner]. The axis is processed in a fixed order and
 * parallelised over the others. No two threads add to the same element, so the bits are deterministic.
 */

export type { ScanDtype } from "./element.js";
export type { Scan, ScatterAdd, ScatterGroup, ScatterShape } from "./problem.js";
export { scanCalls } from "./scan.js";
export { scatterAddCalls } from "./scatter-add.js";
