/**
 * The communicator of a world: MPI between CPUs, NCCL between GPUs. Its kernels have the code of both, and the driver of a device takes its
 * own.
 */

import type { KernelSource } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Communicator } from "./communicator.js";
import type { MpiCommunicator } from "./mpi/communicator.js";
import type { NcclCommunicator } from "./nccl/communicator.js";

export class WorldCommunicator implements Communicator {
  readonly rank: number;
  readonly size: number;
  /** MPI is started at the first use: not every launcher has it. */
  readonly #openMpi: () => MpiCommunicator;
  readonly #sources = new Map<string, KernelSource>();
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

  allGather(bytes: number): KernelSource {
    return this.#source("allGather", ["in", "out"], `${bytes}`, (of) => of.allGather(bytes));
  }

  allToAll(bytes: number): KernelSource {
    return this.#source("allToAll", ["in", "out"], `${bytes}`, (of) => of.allToAll(bytes));
  }

  broadcast(bytes: number, root: number): KernelSource {
    return this.#source("broadcast", ["inout"], `${bytes} from ${root}`, (of) => of.broadcast(bytes, root));
  }

  close(): void {
    this.#mpi?.close();
  }

  #source(
    name: string,
    parameters: KernelSource["parameters"],
    attributes: string,
    of: (communicator: Communicator) => KernelSource,
  ): KernelSource {
    const key = `${name} ${attributes}`;
    const known = this.#sources.get(key);
    if (known) return known;
    const source: KernelSource = {
      name,
      parameters,
      native: (...args) => of(this.mpi).native?.(...args),
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
