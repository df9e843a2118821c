/** `distributed.init`: the world of this process, opened once. */

import { checkOptions } from "../errors/index.js";
import { openWorld, type World, type WorldOptions } from "./world.js";

let current: World | undefined;

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
  });
  current ??= openWorld(given);
  return current;
}
