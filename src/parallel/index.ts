/** parallel: training on several processes. Each has a copy of the model and a part of the batch; their gradients are averaged. */

export { init, type Launch, type RankIdentity, type World, type WorldOptions } from "../distributed/index.js";
export {
  DataParallel,
  type DataParallelOptions,
  type ParallelBackwardOptions,
  type Shard,
} from "./data-parallel.js";
