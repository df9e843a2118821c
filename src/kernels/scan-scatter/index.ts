/**
 * scan-scatter: kernels that walk along one axis of an array seen as [outer, length, inner], step by step in a fixed order,
 * and share everything beside that axis between threads. So no two threads add to one element, and the bits are fixed.
 */

export type { WalkDtype } from "./element.js";
export { type Scan, scanCalls } from "./scan.js";
export { type ScatterAdd, scatterAddCalls } from "./scatter-add.js";
