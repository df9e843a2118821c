/**
 * MPI on the CPU driver's memory, in place. A collective is started without blocking and then tested until it completes. So a rank that
 * waits for one that is lost can be told, and shows that it is alive.
 */

import type { KernelSource } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Communicator, patientObserver, type WaitObserver } from "../communicator.js";
import { pollUntil } from "../poll-until.js";
import type { MpiHandle } from "./implementations.js";
import { fixedCells, type MpiLibrary, openMpi } from "./library.js";

/** Tests in a row before the first pause: a collective of a few kilobytes takes some microseconds. */
const testsBeforePause = 50;
/** Larger messages are counted in doubles: counts have 32 bits. */
const maxCount = 2 ** 31 - 1;

export interface MpiOptions {
  /** The path or soname of the library. */
  readonly library?: string | undefined;
  /** Who started this process, if known: its library is tried first. */
  readonly launcher?: string | undefined;
}

/** Words of the cells: a request (two words), a flag, a number. */
const at = { request: 0, flag: 2, number: 3 } as const;

export class MpiCommunicator implements Communicator {
  readonly rank: number;
  readonly size: number;
  /** Changed once the connections to watch the other ranks are open. */
  observer: WaitObserver = patientObserver;
  readonly #mpi: MpiLibrary;
  readonly #cells = fixedCells(8);
  readonly #sources = new Map<string, KernelSource>();
  #isOpen = true;

  /** Starts MPI. All processes of the launcher call it. A process can do so once. */
  constructor({ library, launcher }: MpiOptions = {}) {
    const mpi = openMpi(library, launcher);
    this.#mpi = mpi;
    const { abi } = mpi;
    const number = this.#address(at.number);
    this.#require("MPI_Init_thread", mpi.init(null, null, abi.threadFunneled, number));
    this.#require("MPI_Comm_set_errhandler", mpi.setErrhandler(abi.world, abi.errorsReturn));
    const read = (name: string, code: number): number => {
      this.#require(name, code);
      return this.#cells.words[at.number] as number;
    };
    this.rank = read("MPI_Comm_rank", mpi.commRank(abi.world, number));
    this.size = read("MPI_Comm_size", mpi.commSize(abi.world, number));
  }

  get name(): string {
    return this.#mpi.version;
  }

  allGather(bytes: number): KernelSource {
    const { iallgather, abi } = this.#mpi;
    const { count, type } = this.#countOf(bytes);
    return this.#source("allGather", bytes * this.size, ["in", "out"], (from, to) =>
      iallgather(from, count, type, to, count, type, abi.world, this.#address(at.request)),
    );
  }

  allToAll(bytes: number): KernelSource {
    const { ialltoall, abi } = this.#mpi;
    const { count, type } = this.#countOf(bytes);
    return this.#source("allToAll", bytes * this.size, ["in", "out"], (from, to) =>
      ialltoall(from, count, type, to, count, type, abi.world, this.#address(at.request)),
    );
  }

  reduceScatter(bytes: number): KernelSource {
    const { ireduceScatterBlock, abi } = this.#mpi;
    const count = bytes / 4;
    // Libraries count the elements of all ranks together in 32 bits.
    if (count * this.size > maxCount)
      throw new HoldfastError(
        "BAD_SIZE",
        `reduceScatter of ${bytes} bytes for each of ${this.size} ranks: it takes less than 8 GiB in all. Exchange it in parts, or pass the option shards to DataParallel.`,
        { numbers: { bytes, ranks: this.size } },
      );
    return this.#source("reduceScatter", bytes * this.size, ["in", "out"], (from, to) =>
      ireduceScatterBlock(from, to, count, abi.float, abi.sum, abi.world, this.#address(at.request)),
    );
  }

  broadcast(bytes: number, root: number): KernelSource {
    const { count, type } = this.#countOf(bytes);
    return this.#source(`broadcast from rank ${root}`, bytes, ["inout"], (data) =>
      this.#mpi.ibcast(data, count, type, root, this.#mpi.abi.world, this.#address(at.request)),
    );
  }

  barrier(): void {
    this.#run("barrier", 0, () => this.#mpi.ibarrier(this.#mpi.abi.world, this.#address(at.request)));
  }

  /** A text of rank 0, on every rank: how they meet. */
  shareText(text: string): string {
    const encoded = Buffer.from(text);
    const lengthBytes = new Uint8Array(Int32Array.of(encoded.length).buffer);
    const [length = 0] = new Int32Array(this.#shareBytes(lengthBytes).buffer);
    const bytes = new Uint8Array(length);
    if (this.rank === 0) bytes.set(encoded);
    return Buffer.from(this.#shareBytes(bytes)).toString();
  }

  #shareBytes(bytes: Uint8Array): Uint8Array {
    const { words, address } = fixedCells(Math.ceil(bytes.length / 4));
    const cells = new Uint8Array(words.buffer, 0, bytes.length);
    cells.set(bytes);
    const { abi, ibcast } = this.#mpi;
    this.#run("broadcast", bytes.length, () =>
      ibcast(address, bytes.length, abi.byte, 0, abi.world, this.#address(at.request)),
    );
    return Uint8Array.from(cells);
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#require("MPI_Finalize", this.#mpi.finalize());
  }

  #source(
    name: string,
    bytes: number,
    parameters: KernelSource["parameters"],
    start: (...addresses: [number, number]) => number,
  ): KernelSource {
    const key = `${name} ${bytes}`;
    const known = this.#sources.get(key);
    if (known) return known;
    const source: KernelSource = {
      name,
      parameters,
      // The first two arguments are the blocks.
      native: (_first = 0, _end = 0, from = 0, to = 0) => {
        if (bytes > 0) this.#run(name, bytes, () => start(from, to));
      },
    };
    this.#sources.set(key, source);
    return source;
  }

  #countOf(bytes: number): { readonly count: number; readonly type: MpiHandle } {
    const { byte, double } = this.#mpi.abi;
    if (bytes <= maxCount) return { count: bytes, type: byte };
    if (bytes % 8 === 0 && bytes / 8 <= maxCount) return { count: bytes / 8, type: double };
    throw new HoldfastError(
      "BAD_SIZE",
      `A collective of ${bytes} bytes for each rank; beyond 2 GiB it takes a multiple of 8 bytes, up to 16 GiB. Exchange it in parts.`,
      { numbers: { bytes } },
    );
  }

  #run(name: string, bytes: number, start: () => number): void {
    if (!this.#isOpen)
      throw new HoldfastError("CLOSED", `${name} after the end of communication with other ranks.`);
    const { test, abi } = this.#mpi;
    const [request, flag] = [this.#address(at.request), this.#address(at.flag)];
    const { words } = this.#cells;
    this.observer.begin(name, bytes);
    this.#require(name, start());
    const isDone = (): boolean => {
      words[at.flag] = 0;
      this.#require(name, test(request, flag, abi.statusIgnore));
      return words[at.flag] !== 0;
    };
    const goesOn = (): boolean => {
      this.observer.poll();
      return true;
    };
    pollUntil(isDone, goesOn, testsBeforePause);
    this.observer.end();
  }

  #address(word: number): bigint {
    return this.#cells.address + BigInt(4 * word);
  }

  #require(call: string, code: number): void {
    if (code === 0) return;
    const text = this.#mpi.errorText(code);
    throw new HoldfastError(
      "DRIVER_FAILED",
      `${call} failed in ${this.name}: ${text} (${code}). Another rank may have ended: its own message is in its output.`,
      { numbers: { code } },
    );
  }
}
