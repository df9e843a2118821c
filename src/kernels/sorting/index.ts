/** kernels/sorting: sorting rows on the host. */

export { type HostSortDtype, hostSortDtypes, hostSortKernel, maxMergedRow } from "./host-sort.js";
