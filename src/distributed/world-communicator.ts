/**
 * The communicator of a world: MPI between CPUs, NCCL between GPUs. Its kernels have the code of both, and the driver of a device takes its
 * own.
 */

import type { KernelSource } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import type { RankTraffic } from "../records/index.js";
import type { Communicator } from "./communicator.js";
import type { MpiCommunicator } from "./mpi/communicator.js";
import type { NcclCommunicator } from "./nccl/communicator.js";

export class WorldCommunicator implements Communicator {
  readonly rank: number;
  readonly size: number;
  /** MPI is started at the first use: not every launcher has it. */
  readonly #openMpi: () => MpiCommunicator;
  readonly #sources = new Map<string, KernelSource>();
  readonly #traffic = { collectives: 0, sentBytes: 0, ms: 0 };
  #mpi: MpiCommunicator | undefined;
  /** For the GPU of this process. */
  nccl: NcclCommunicator | undefined;

  constructor(
    { rank, size }: { readonly rank: number; readonly size: number },
    openMpi: () => MpiCommunicator,
  ) {
    this.rank = rank;
    this.size = size;
    this.#openMpi = openMpi;
  }

  get name(): string {
    const names = [this.#mpi?.name, this.nccl?.name].filter((name) => name !== undefined);
    return names.length > 0 ? names.join(" and ") : "no library yet";
  }

  get mpi(): MpiCommunicator {
    this.#mpi ??= this.#openMpi();
    return this.#mpi;
  }

  /** What this rank has exchanged by MPI. The host does not see the collectives of GPUs: they are parts of graphs. */
  get traffic(): RankTraffic {
    return { ...this.#traffic };
  }

  allGather(bytes: number): KernelSource {
    const sent = bytes * (this.size - 1);
    return this.#source("allGather", ["in", "out"], `${bytes}`, sent, (of) => of.allGather(bytes));
  }

  allToAll(bytes: number): KernelSource {
    const sent = bytes * (this.size - 1);
    return this.#source("allToAll", ["in", "out"], `${bytes}`, sent, (of) => of.allToAll(bytes));
  }

  reduceScatter(bytes: number): KernelSource {
    const sent = bytes * (this.size - 1);
    return this.#source("reduceScatter", ["in", "out"], `${bytes}`, sent, (of) => of.reduceScatter(bytes));
  }

  broadcast(bytes: number, root: number): KernelSource {
    const sent = this.rank === root ? bytes * (this.size - 1) : 0;
    return this.#source("broadcast", ["inout"], `${bytes} from ${root}`, sent, (of) =>
      of.broadcast(bytes, root),
    );
  }

  close(): void {
    this.#mpi?.close();
  }

  #source(
    name: string,
    parameters: KernelSource["parameters"],
    attributes: string,
    sentBytes: number,
    of: (communicator: Communicator) => KernelSource,
  ): KernelSource {
    const key = `${name} ${attributes}`;
    const known = this.#sources.get(key);
    if (known) return known;
    const source: KernelSource = {
      name,
      parameters,
      native: (...args) => {
        const startMs = performance.now();
        of(this.mpi).native?.(...args);
        this.#traffic.collectives++;
        this.#traffic.sentBytes += sentBytes;
        this.#traffic.ms += performance.now() - startMs;
      },
      enqueue: (...args) => of(this.#requireNccl(name)).enqueue?.(...args),
    };
    this.#sources.set(key, source);
    return source;
  }

  #requireNccl(name: string): NcclCommunicator {
    if (this.nccl) return this.nccl;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name} on a GPU that the other ranks do not know. Call parallel.broadcast(model) first, with a model on that GPU, on every rank.`,
    );
  }
}
