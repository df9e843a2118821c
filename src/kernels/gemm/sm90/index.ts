/** warpgroup: products of our own on Hopper's tensor cores: many in one launch, or one with elementwise work behind it. */

export type { Finish, WarpgroupForm } from "./configs.js";
export { summedRows } from "./epilogue-store.js";
export {
  type FinishOn,
  launchWarpgroups,
  warpgroupBatchOf,
  warpgroupFinishOf,
  warpgroupPlainsOf,
  warpgroupsOf,
  warpgroupsPreferTurned,
} from "./launch.js";
