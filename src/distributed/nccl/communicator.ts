/**
 * NCCL between GPUs. A collective is issued to the stream of its launch, eagerly or in a capture. The communicator does not block: a call
 * that waits for other ranks, such as one that makes connections, is in progress until they answer, and the host learns meanwhile if one is
 * lost. What a stream waits for, the host does not see; see `abort.ts`.
 */

import { type KernelSource, NativeBuffer } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { formatDuration, sleepSync } from "../../units/index.js";
import { type Communicator, patientObserver, type WaitObserver } from "../communicator.js";
import { pollUntil } from "../poll-until.js";
import {
  ncclConfig,
  ncclOperation,
  ncclResult,
  ncclType,
  ncclVersions,
  nonBlockingConfig,
  uniqueIdBytes,
} from "./bindings.js";
import { formatNcclVersion, type Nccl } from "./library.js";

/** Questions in a row before the first pause. */
const pollsBeforePause = 200;
/** How long the other ranks' news may take after a failure that they may have caused. */
const newsMs = 1000;
/** How long the end of a communicator may take. */
const closeMs = 10_000;

export interface NcclOptions {
  readonly nccl: Nccl;
  readonly rank: number;
  readonly size: number;
  /** Gives every rank the bytes of rank 0. */
  readonly share: (id: Uint8Array | undefined) => Uint8Array;
  /** How long the set-up may take. */
  readonly withinMs: number;
  readonly observer?: WaitObserver;
}

type State = "open" | "aborted" | "closed";

export class NcclCommunicator implements Communicator {
  readonly rank: number;
  readonly size: number;
  readonly #nccl: Nccl;
  readonly #observer: WaitObserver;
  readonly #out = new NativeBuffer();
  readonly #withinMs: number;
  readonly #sources = new Map<string, KernelSource>();
  #handle = 0;
  #state: State = "open";

  /** All ranks call it, each with the context of its own GPU current. */
  constructor({ nccl, rank, size, share, withinMs, observer = patientObserver }: NcclOptions) {
    this.#nccl = nccl;
    this.#observer = observer;
    this.#withinMs = withinMs;
    this.rank = rank;
    this.size = size;
    const block = new NativeBuffer(uniqueIdBytes + ncclConfig.size);
    try {
      if (rank === 0) nccl.calls.ncclGetUniqueId(block.address);
      const id = share(rank === 0 ? block.bytes.slice(0, uniqueIdBytes) : undefined);
      block.bytes.set(id.subarray(0, uniqueIdBytes));
      ncclConfig.write(block.view, nonBlockingConfig, uniqueIdBytes);
      this.#run("the set-up of NCCL", 0, () => {
        const { address } = block;
        const { ncclCommInitRankScalable: init } = nccl.calls.status;
        const status = init(this.#out.address, size, rank, 1, address, address + uniqueIdBytes);
        this.#handle = this.#out.u64();
        return status;
      });
    } catch (error) {
      this.abort();
      throw error;
    } finally {
      block.free();
    }
  }

  get name(): string {
    return `NCCL ${formatNcclVersion(this.#nccl.version)}`;
  }

  /** NCCL's handle, for the thread that aborts. */
  get handle(): number {
    return this.#handle;
  }

  allGather(bytes: number): KernelSource {
    const { ncclAllGather } = this.#nccl.calls.status;
    return this.#source("allGather", bytes, bytes * this.size, ["in", "out"], (stream, from, to) =>
      ncclAllGather(from, to, bytes, ncclType.Uint8, this.#handle, stream),
    );
  }

  allToAll(bytes: number): KernelSource {
    const { status } = this.#nccl.calls;
    return this.#source("allToAll", bytes, bytes * this.size, ["in", "out"], (stream, from, to) =>
      this.#nccl.version >= ncclVersions.allToAll
        ? status.ncclAlltoAll(from, to, bytes, ncclType.Uint8, this.#handle, stream)
        : this.#sendAndReceive(bytes, stream, from, to),
    );
  }

  reduceScatter(bytes: number): KernelSource {
    const { ncclReduceScatter } = this.#nccl.calls.status;
    const [{ Float32 }, { Sum }] = [ncclType, ncclOperation];
    return this.#source("reduceScatter", bytes, bytes * this.size, ["in", "out"], (stream, from, to) =>
      ncclReduceScatter(from, to, bytes / 4, Float32, Sum, this.#handle, stream),
    );
  }

  broadcast(bytes: number, root: number): KernelSource {
    const { ncclBroadcast } = this.#nccl.calls.status;
    return this.#source(`broadcast from rank ${root}`, bytes, bytes, ["inout"], (stream, data) =>
      ncclBroadcast(data, data, bytes, ncclType.Uint8, root, this.#handle, stream),
    );
  }

  /** Ends it, after the last collective. Graphs with its collectives must be destroyed before: NCCL waits for that. */
  close(): void {
    if (this.#state !== "open") return;
    this.#state = "closed";
    const { status } = this.#nccl.calls;
    const endMs = performance.now() + closeMs;
    let result: number = status.ncclCommFinalize(this.#handle);
    if (result === ncclResult.Success || result === ncclResult.InProgress)
      result = this.#await(() => performance.now() < endMs);
    // Without an answer it stays: a call that waits for it could wait for ever.
    if (result === ncclResult.Success) status.ncclCommDestroy(this.#handle);
    this.#out.free();
  }

  /** Ends it at once, on this rank alone. What its collectives were to write is undefined. May block if CUDA does. */
  abort(): void {
    if (this.#state !== "open") return;
    this.#state = "aborted";
    if (this.#handle !== 0) this.#nccl.calls.status.ncclCommAbort(this.#handle);
    this.#out.free();
  }

  /** Another thread aborts it. */
  markAborted(): void {
    if (this.#state === "open") this.#state = "aborted";
  }

  #sendAndReceive(bytes: number, stream: number, from: number, to: number): number {
    const { status } = this.#nccl.calls;
    const results = [status.ncclGroupStart()];
    for (let peer = 0; peer < this.size; peer++) {
      const offset = peer * bytes;
      results.push(status.ncclSend(from + offset, bytes, ncclType.Uint8, peer, this.#handle, stream));
      results.push(status.ncclRecv(to + offset, bytes, ncclType.Uint8, peer, this.#handle, stream));
    }
    results.push(status.ncclGroupEnd());
    const isFine = (result: number): boolean =>
      result === ncclResult.Success || result === ncclResult.InProgress;
    return results.find((result) => !isFine(result)) ?? (results.at(-1) as number);
  }

  #source(
    name: string,
    bytes: number,
    totalBytes: number,
    parameters: KernelSource["parameters"],
    start: (stream: number, from: number, to: number) => number,
  ): KernelSource {
    const key = `${name} ${bytes}`;
    const known = this.#sources.get(key);
    if (known) return known;
    const source: KernelSource = {
      name,
      parameters,
      enqueue: (stream, from = 0, to = 0) => {
        if (bytes > 0) this.#run(name, totalBytes, () => start(stream, from, to));
      },
    };
    this.#sources.set(key, source);
    return source;
  }

  /** Makes a call, and waits until it is no longer in progress. */
  #run(name: string, bytes: number, call: () => number): void {
    if (this.#state !== "open")
      throw new HoldfastError(
        this.#state === "aborted" ? "RANK_LOST" : "CLOSED",
        this.#state === "aborted"
          ? `${name} after a rank was lost: NCCL was aborted.`
          : `${name} after the end of communication with other ranks.`,
      );
    this.#observer.begin(name, bytes);
    const started = call();
    const endMs = performance.now() + this.#withinMs;
    const result =
      started === ncclResult.InProgress
        ? this.#await(() => {
            this.#observer.poll();
            return performance.now() < endMs;
          })
        : started;
    if (result !== ncclResult.Success) this.#fail(name, result);
    this.#observer.end();
  }

  /** Asks until the communicator is no longer in progress, or `goesOn` is false. Returns its state. */
  #await(goesOn: () => boolean): number {
    const { ncclCommGetAsyncError } = this.#nccl.calls.status;
    let state: number = ncclResult.InProgress;
    const isDone = (): boolean => {
      const failed = ncclCommGetAsyncError(this.#handle, this.#out.address);
      state = failed === ncclResult.Success ? this.#out.i32() : failed;
      return state !== ncclResult.InProgress;
    };
    pollUntil(isDone, goesOn, pollsBeforePause);
    return state;
  }

  #fail(name: string, result: number): never {
    if (result === ncclResult.InProgress)
      throw new HoldfastError(
        "RANK_LOST",
        `${this.name} has not completed ${name} within ${formatDuration(this.#withinMs)}, though all ranks are there: it does not reach the other GPUs. ` +
          "Set NCCL_DEBUG=INFO to see which network it uses, and NCCL_SOCKET_IFNAME to choose one.",
        { numbers: { rank: this.rank, size: this.size } },
      );
    // Another rank's end makes NCCL fail here too. Then that is the error to report.
    for (const endMs = performance.now() + newsMs; this.size > 1 && performance.now() < endMs; ) {
      this.#observer.poll();
      sleepSync(20);
    }
    const { ncclGetErrorString, ncclGetLastError } = this.#nccl.calls;
    const last = ncclGetLastError(this.#handle).trim();
    throw new HoldfastError(
      "DRIVER_FAILED",
      `${name} failed in ${this.name}: ${ncclGetErrorString(result)} (${result})${last === "" ? "" : `: ${last}`}. Set NCCL_DEBUG=WARN to see its own message. ` +
        "Another rank may have ended: its message is in its output.",
      { numbers: { result, rank: this.rank } },
    );
  }
}
