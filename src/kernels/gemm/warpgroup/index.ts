/** warpgroup: products of our own on Hopper's tensor cores: many in one launch, or one with elementwise work behind it. */

export type { Finish } from "./form.js";
export {
  type FinishOn,
  launchWarpgroups,
  warpgroupBatchOf,
  warpgroupFinishOf,
  warpgroupPlainOf,
  warpgroupsOf,
} from "./launch.js";
