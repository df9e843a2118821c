/** warpgroup: products of our own on Hopper's tensor cores: many in one launch, or one with elementwise work behind it. */

export type { Epilogue, Sm90Config } from "./configs.js";
export { colsumRows } from "./epilogue-store.js";
export {
  type EpilogueOn,
  lowerWarpgroups,
  sm90EpilogueOf,
  sm90PrefersTransposedB,
  warpgroupBatchOf,
  warpgroupPlainsOf,
  warpgroupsOf,
} from "./launch.js";
