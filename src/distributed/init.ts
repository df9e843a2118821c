/** `distributed.init`: the world of this process, opened once. */

import { checkOptions } from "../errors/index.js";
import { openWorld, type World, type WorldOptions } from "./world.js";

let current: World | undefined;

/** The GPU of this process, among those that it sees: that of its local rank. A launcher may show each process its own only. */
export function localGpu(visible: number): number {
  return visible > 1 ? (current?.localRank ?? 0) : 0;
}

/**
 * Finds the other processes of this run, by the variables of torchrun, Open MPI, MPICH or Slurm. A process that was started by hand is a world
 * of one. The second call returns the same world.
 *
 * @example
 * ```ts
 * import { distributed } from "holdfast";
 * const world = distributed.init();
 * console.log(world.rank, world.size); // → 0 1
 * world.close();
 * ```
 */
export function init(options: WorldOptions = {}): World {
  const given = checkOptions("distributed.init", options, {
    timeoutMs: true,
    connectWithinMs: true,
    mpi: true,
    nccl: true,
  });
  current ??= openWorld(given);
  return current;
}
