/** The world: all processes of a run, and how this one reaches the others. */

import { HoldfastError } from "../errors/index.js";
import type { Communicator } from "./communicator.js";
import { type Environment, type Launch, readLaunch } from "./launch/launch-variables.js";
import { MpiCommunicator } from "./mpi/communicator.js";
import type { RankIdentity } from "./peers/messages.js";
import { Peers } from "./peers/peers.js";

/** Options of `distributed.init`. */
export interface WorldOptions {
  /** How long a rank may be silent, or do nothing while others wait for it, in milliseconds. Default: 60,000. */
  readonly timeoutMs?: number;
  /** How long ranks may take to find each other, in milliseconds. Default: 300,000. */
  readonly connectWithinMs?: number;
  /** The path or soname of the MPI library. Default: the installed one. */
  readonly mpi?: string;
}

/** All processes of a run, as one of them sees it. */
export interface World {
  /** The number of this process, from 0. */
  readonly rank: number;
  /** The number of processes. */
  readonly size: number;
  /** The rank among the processes of this machine. */
  readonly localRank: number;
  readonly launch: Launch;
  /** Undefined in a world of one. */
  readonly communicator: Communicator | undefined;
  readonly ranks: readonly RankIdentity[];
  /** What every rank passes to the same call, in the order of ranks. JSON values. */
  exchange<T>(name: string, value: T): readonly T[];
  /** Returns when every rank has called it. */
  barrier(): void;
  /**
   * Shows the other ranks what a runtime does, by its shared status.
   *
   * @internal
   */
  watch(status: SharedArrayBuffer): void;
  /** Tells the other ranks that an error ends this one. */
  fail(error: unknown): void;
  /** Waits until every rank has called it, and ends the connections. */
  close(): void;
}

const defaults = { timeoutMs: 60_000, connectWithinMs: 300_000 } as const;

/** Finds the other processes of this run. Throws within `connectWithinMs` if one is missing. */
export function openWorld(options: WorldOptions = {}, environment: Environment = process.env): World {
  const launch = readLaunch(environment);
  return launch.size === 1 ? new LonelyWorld(launch) : new ConnectedWorld(launch, options);
}

class LonelyWorld implements World {
  readonly rank = 0;
  readonly size = 1;
  readonly localRank = 0;
  readonly launch: Launch;
  readonly communicator = undefined;
  readonly ranks: readonly RankIdentity[] = [{ rank: 0, size: 1, host: "localhost", pid: process.pid }];

  constructor(launch: Launch) {
    this.launch = launch;
  }

  exchange<T>(_name: string, value: T): readonly T[] {
    return [value];
  }

  barrier(): void {}

  watch(): void {}

  fail(): void {}

  close(): void {}
}

class ConnectedWorld implements World {
  readonly rank: number;
  readonly size: number;
  readonly localRank: number;
  readonly launch: Launch;
  readonly communicator: MpiCommunicator;
  readonly #peers: Peers;

  constructor(launch: Launch, options: WorldOptions) {
    const { rank, size, master, launcher } = launch;
    const { timeoutMs = defaults.timeoutMs, connectWithinMs = defaults.connectWithinMs } = options;
    this.launch = launch;
    this.rank = rank;
    this.size = size;
    this.localRank = launch.localRank;
    const communicator = new MpiCommunicator({ library: options.mpi, launcher });
    requireSameRank(launch, communicator);
    this.communicator = communicator;
    this.#peers = new Peers({
      ...{ rank, size, master, timeoutMs, connectWithinMs },
      share: (text) => communicator.shareText(text),
    });
    communicator.observer = this.#peers;
    process.on("uncaughtExceptionMonitor", this.#failed);
    process.on("exit", this.#exited);
  }

  get ranks(): readonly RankIdentity[] {
    return this.#peers.identities;
  }

  exchange<T>(name: string, value: T): readonly T[] {
    return this.#peers.exchange(name, value);
  }

  barrier(): void {
    this.communicator.barrier();
  }

  watch(status: SharedArrayBuffer): void {
    this.#peers.watch(status);
  }

  fail(error: unknown): void {
    this.#peers.fail(error);
  }

  close(): void {
    process.off("uncaughtExceptionMonitor", this.#failed);
    process.off("exit", this.#exited);
    this.#peers.close();
    this.communicator.close();
  }

  readonly #failed = (error: unknown): void => this.fail(error);

  readonly #exited = (code: number): void => {
    if (code !== 0) this.fail(`its process ends with exit code ${code}`);
  };
}

/** MPI must have been started by the launcher whose variables were read. Otherwise every process is a world of its own. */
function requireSameRank({ rank, size, launcher }: Launch, mpi: MpiCommunicator): void {
  if (mpi.rank === rank && mpi.size === size) return;
  const { rank: foundRank, size: foundSize, name } = mpi;
  mpi.close();
  throw new HoldfastError(
    "RANKS_DIFFER",
    `${launcher} says that this is rank ${rank} of ${size}, but ${name} says that it is rank ${foundRank} of ${foundSize}. On the CPU, ranks exchange bytes ` +
      "by MPI: start them with the mpirun of the same library, or pass the library of this mpirun: distributed.init({ mpi }).",
    { numbers: { rank, size, foundRank, foundSize } },
  );
}
