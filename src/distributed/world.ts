/** The world: all processes of a run, and how this one reaches the others. */

import { loadKoffi } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import { packageVersion } from "../files/index.js";
import type { RankTraffic } from "../records/index.js";
import type { Runtime } from "../runtime/index.js";
import { attachGpu } from "./attach-gpu.js";
import type { Communicator } from "./communicator.js";
import { type Environment, type Launch, readLaunch } from "./launch/launch-variables.js";
import { MpiCommunicator } from "./mpi/communicator.js";
import type { RankIdentity } from "./peers/messages.js";
import { Peers } from "./peers/peers.js";
import { WorldCommunicator } from "./world-communicator.js";

/** Options of `distributed.init`. */
export interface WorldOptions {
  /** How long a rank may be silent, or do nothing while others wait for it, in milliseconds. Default: 60,000. */
  readonly timeoutMs?: number;
  /** How long ranks may take to find each other, in milliseconds. Default: 300,000. */
  readonly connectWithinMs?: number;
  /** The path or soname of the MPI library. Default: the installed one. */
  readonly mpi?: string;
  /** The path of the NCCL library. Default: found as the CUDA libraries are. */
  readonly nccl?: string;
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
  /**
   * What this rank has exchanged by MPI.
   *
   * @internal
   */
  readonly traffic: RankTraffic;
  /** What every rank passes to the same call, in the order of ranks. JSON values. */
  exchange<T>(name: string, value: T): readonly T[];
  /** Returns when every rank has called it. */
  barrier(): void;
  /**
   * Connects a device with those of the other ranks, and shows them what it does. All ranks call it, for devices of the same kind. The
   * second call for a device does nothing.
   *
   * @internal
   */
  attach(runtime: Runtime): void;
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
  readonly traffic: RankTraffic = { collectives: 0, sentBytes: 0, ms: 0 };

  constructor(launch: Launch) {
    this.launch = launch;
  }

  exchange<T>(_name: string, value: T): readonly T[] {
    return [value];
  }

  barrier(): void {}

  attach(): void {}

  fail(): void {}

  close(): void {}
}

class ConnectedWorld implements World {
  readonly rank: number;
  readonly size: number;
  readonly localRank: number;
  readonly launch: Launch;
  readonly communicator: WorldCommunicator;
  readonly #options: WorldOptions;
  readonly #peers: Peers;
  readonly #attached = new WeakSet<Runtime>();

  constructor(launch: Launch, options: WorldOptions) {
    const { rank, size, master } = launch;
    const { timeoutMs = defaults.timeoutMs, connectWithinMs = defaults.connectWithinMs } = options;
    this.launch = launch;
    this.rank = rank;
    this.size = size;
    this.localRank = launch.localRank;
    this.#options = options;
    const communicator = new WorldCommunicator(launch, () => this.#openMpi());
    this.communicator = communicator;
    // Launchers of MPI programs do not say where rank 0 is; the others need no MPI, unless CPUs exchange bytes.
    const share = launch.launcher === "Open MPI" || launch.launcher === "MPICH" || !master;
    this.#peers = new Peers({
      ...{ rank, size, master, timeoutMs, connectWithinMs },
      share: share ? (text) => communicator.mpi.shareText(text) : undefined,
    });
    if (share) communicator.mpi.observer = this.#peers;
    process.on("uncaughtExceptionMonitor", this.#failed);
    process.on("exit", this.#exited);
    this.#requireSameVersions();
  }

  #openMpi(): MpiCommunicator {
    const { launch } = this;
    const mpi = new MpiCommunicator({ library: this.#options.mpi, launcher: launch.launcher });
    requireSameRank(launch, mpi);
    return mpi;
  }

  #requireSameVersions(): void {
    const versions = this.exchange("the version of Holdfast", packageVersion());
    const rank = versions.findIndex((version) => version !== versions[0]);
    if (rank < 0) return;
    throw new HoldfastError(
      "RANKS_DIFFER",
      `Rank ${rank} on ${this.ranks[rank]?.host} has Holdfast ${versions[rank]}, and rank 0 on ${this.ranks[0]?.host} has ${versions[0]}. Install the same version everywhere.`,
      { numbers: { rank } },
    );
  }

  get ranks(): readonly RankIdentity[] {
    return this.#peers.identities;
  }

  get traffic(): RankTraffic {
    return this.communicator.traffic;
  }

  exchange<T>(name: string, value: T): readonly T[] {
    return this.#peers.exchange(name, value);
  }

  barrier(): void {
    this.exchange("barrier", null);
  }

  attach(runtime: Runtime): void {
    if (this.#attached.has(runtime)) return;
    this.#attached.add(runtime);
    this.#peers.watch(runtime.sharedStatus);
    if (runtime.device.kind === "cuda") this.#attachGpu(runtime);
    else {
      this.communicator.mpi.observer = this.#peers;
      // Nothing that ranks on CPUs measure changes their collectives.
      runtime.choices.compare(this.#peers);
    }
  }

  #attachGpu(runtime: Runtime): void {
    const { communicator } = this;
    const peers = this.#peers;
    if (communicator.nccl)
      throw new HoldfastError(
        "UNSUPPORTED",
        "This process has connected another GPU already: start one process for each GPU, or close the first device.",
      );
    const { connectWithinMs: withinMs = defaults.connectWithinMs, nccl: library } = this.#options;
    const nccl = attachGpu({ peers, runtime, library, withinMs });
    communicator.nccl = nccl;
    runtime.choices.link(peers);
    runtime.onWaited(() => {
      try {
        peers.poll();
      } catch (error) {
        nccl.markAborted();
        // The last to hear of the exit: NCCL's threads may wait for ever then.
        process.off("exit", this.#leaveNccl);
        process.on("exit", this.#leaveNccl);
        throw error;
      }
    });
    runtime.onClose(() => {
      communicator.nccl = undefined;
      if (peers.takeCommunicator()) nccl.close();
    });
  }

  /** While NCCL is being aborted, an ordinary exit would wait for it. */
  readonly #leaveNccl = (code: number): void => {
    if (this.#peers.isAborting) loadKoffi().load(null).func("void _exit(int code)")(code);
  };

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
