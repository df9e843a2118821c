/**
 * axis-walk: kernels that walk along one axis of an array seen as [outer, length, inner], step by step in a fixed order,
 * and share everything beside that axis between threads. So no two threads add to one element, and the bits are fixed.
 */

export type { WalkDtype } from "./element.js";
export { launchScan, type Scan } from "./scan.js";
export { launchScatterAdd, type ScatterAdd } from "./scatter-add.js";
