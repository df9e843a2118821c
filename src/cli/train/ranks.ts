/** The ranks of a `holdfast train` command: several processes that a launcher has started, or one with shards. */

import { availableParallelism } from "node:os";
import { readLaunch } from "../../distributed/index.js";
import { HoldfastError } from "../../errors/index.js";
import { DataParallel, init, type World } from "../../parallel/index.js";
import { type SettingOptions, settingsTable } from "../../runtime/index.js";
import type { RunOptions } from "./run-options.js";

export interface Ranks {
  readonly world: World;
  readonly parallel: DataParallel;
}

/** Finds the other ranks. Undefined for one process without shards. */
export function openRanks({ shards, shardOptimizer = false, rankTimeout }: RunOptions): Ranks | undefined {
  const { size } = readLaunch();
  if (size === 1 && shards === undefined) {
    if (!shardOptimizer) return undefined;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "--shard-optimizer needs several processes: start them with mpirun -n 4 holdfast train …",
    );
  }
  const world = init(rankTimeout === undefined ? {} : { timeoutMs: rankTimeout });
  return { world, parallel: new DataParallel(world, shards === undefined ? {} : { shards }) };
}

/**
 * The device of a rank. Processes of one machine share its processors. With a chosen number of shards the bits must not depend on the number
 * of ranks, and those of a BLAS library depend on its threads. Environment variables take precedence.
 */
export function rankDeviceOptions(
  { world }: Ranks,
  { shards }: RunOptions,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Pick<SettingOptions, "threads" | "blas"> {
  const isUnset = (name: "threads" | "blas"): boolean =>
    environment[settingsTable[name].variable] === undefined;
  const host = world.ranks[world.rank]?.host;
  const here = world.ranks.filter((other) => other.host === host).length;
  return {
    ...(here > 1 &&
      isUnset("threads") && { threads: Math.max(1, Math.floor(availableParallelism() / here)) }),
    ...(shards !== undefined && isUnset("blas") && { blas: "off" as const }),
  };
}
