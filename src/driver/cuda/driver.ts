/**
 * An NVIDIA GPU as a device, through the driver API. This file gives the interface its CUDA meaning: handles, order, what
 * a capture rejects. Memory, kernels, products and graphs have files of their own.
 *
 * Everything runs in the device's primary context, which the CUDA libraries share. Streams don't wait for the default
 * stream, which nothing here uses.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes, GiB, type Span } from "../../units/index.js";
import { begunTwice, capturedEvent, notBegun } from "../capture-rejections.js";
import { requireByte, requireHostSize, requireHostSpan, requireSameSize } from "../checks.js";
import type {
  CaptureMode,
  DeviceInfo,
  Driver,
  Event,
  Graph,
  HostMemory,
  HostSpan,
  Kernel,
  KernelSource,
  Launch,
  MemoryInfo,
  Stream,
  StreamOptions,
} from "../driver.js";
import { loadKoffi } from "../foreign-functions.js";
import { HandleTable } from "../handles.js";
import type { Cuda } from "./calls.js";
import { CudaCapture } from "./capture.js";
import { Compiler } from "./compiler.js";
import { captureMode, cudaStatus, eventFlag, streamFlag, streamPriority } from "./constants.js";
import { type CubinCache, openCubinCache } from "./cubin-cache.js";
import { Products } from "./cublaslt.js";
import { type OpenedDevice, openDevice, supportsPdl } from "./devices.js";
import { CudaGraph, countAllNodes, countNodes, type Inventory } from "./graph.js";
import { type LoadedKernel, loadCode } from "./kernels.js";
import { type CudaMemory, openMemory } from "./memory.js";
import { type MemoryChecker, openMemoryChecker } from "./memory-checker.js";
import { OutBlock } from "./out-block.js";
import { requireLive } from "./spans.js";

/** Addresses cost nothing until memory is behind them. */
const addressSpace = bytes(16 * 1024 * GiB);

export interface CudaDriverOptions {
  /** Which of the machine's GPUs, as `listCudaDevices` counts them. 0 unless given. */
  readonly index?: number;
  /** Where compiled kernels are kept; "off" compiles them anew each time. */
  readonly cacheFolder?: string;
  /** "plain" takes memory as devices without the virtual memory API have it, whole; "auto" unless given. */
  readonly allocation?: "auto" | "plain";
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

export interface CudaDriver extends Driver {
  /** How many kernels were compiled since the start, and how many came from the cache. */
  readonly compiled: Readonly<Record<"compiled" | "cached", number>>;
}

interface HostBuffer {
  readonly address: number;
  readonly bytes: Uint8Array;
}

/**
 * Opens a GPU. Throws NO_CUDA, with what is missing, where there is none that can be used.
 *
 * @example
 * ```ts
 * import { HoldfastError, openCudaDriver } from "holdfast";
 * try {
 *   const driver = openCudaDriver({ index: 0 });
 *   console.error(driver.describe().name);
 *   driver.close();
 * } catch (error) {
 *   if (error instanceof HoldfastError) console.error(error.message); // no GPU here: what is missing, and what brings it
 * }
 * ```
 */
export function openCudaDriver(options: CudaDriverOptions = {}): CudaDriver {
  return new CudaDevice(options);
}

class CudaDevice implements CudaDriver {
  readonly #cuda: Cuda;
  readonly #opened: OpenedDevice;
  readonly #description: DeviceInfo;
  readonly #memory: CudaMemory;
  readonly #checker: MemoryChecker | undefined;
  readonly #compiler: Compiler;
  readonly #products: Products;
  readonly #out = new OutBlock(128);
  readonly #streams = new HandleTable<Stream, number>("Stream");
  readonly #events = new HandleTable<Event, number>("Event");
  readonly #kernels = new HandleTable<Kernel, LoadedKernel>("Kernel");
  readonly #graphs = new HandleTable<Graph, CudaGraph>("Graph");
  readonly #hosts = new HandleTable<HostMemory, HostBuffer>("Host memory");
  /** Events that were last recorded in a capture: they mark no work that runs. */
  readonly #capturedEvents = new Set<Event>();
  /** For graphs, which may have outlived what they touch. */
  readonly #inventory: Inventory = {
    holds: (span) => this.#memory.book.holds(span),
    isLoaded: (kernel) => this.#kernels.has(kernel),
    isAllocated: (host) => this.#hosts.has(host),
  };
  readonly #cache: CubinCache;
  /** What notes are about: the same device under another driver may be quicker at something else. */
  readonly #versions: string;
  #capture: CudaCapture | undefined;
  /** Counts what graphs may depend on and is gone. */
  #deaths = 0;
  #isClosed = false;
  /** There only where a tool that checks memory listens. */
  readonly annotate?: NonNullable<Driver["annotate"]>;

  constructor(options: CudaDriverOptions) {
    const { index = 0, cacheFolder = "off", allocation = "auto", environment = process.env } = options;
    const opened = openDevice(index, environment);
    const { cuda, info, ordinal } = opened;
    this.#cuda = cuda;
    this.#opened = opened;
    this.#cache = openCubinCache(cacheFolder);
    this.#versions = `${info.name}, driver ${info.driverVersion}`;
    try {
      this.#checker = openMemoryChecker(cuda, environment);
      this.#memory = openMemory(cuda, ordinal, allocation);
      this.#compiler = new Compiler({
        cuda,
        computeCapability: info.computeCapability,
        driverVersion: info.driverVersion,
        cache: this.#cache,
      });
      this.#products = new Products(cuda);
    } catch (error) {
      opened.release();
      this.#out.free();
      throw error;
    }
    const checker = this.#checker;
    if (checker) this.annotate = (range, state) => this.#tellChecker(checker, range, state);
    const { granularity, canCommitInParts } = this.#memory;
    this.#description = {
      kind: "cuda",
      name: info.name,
      index,
      memory: info.isIntegrated ? "unified" : "discrete",
      addressSpace: canCommitInParts ? addressSpace : info.totalBytes,
      granularity,
      canCommitInParts,
      parallelism: info.multiprocessors,
      computeCapability: info.computeCapability,
      supportsPdl: supportsPdl(info),
    };
  }

  recall(key: string): string | undefined {
    this.#enter();
    const note = this.#cache.read(this.#noteKey(key));
    return note && new TextDecoder().decode(note);
  }

  remember(key: string, note: string): void {
    this.#enter();
    this.#cache.write(this.#noteKey(key), new TextEncoder().encode(note));
  }

  #noteKey(key: string): string {
    return this.#cache.keyOf(["note", this.#versions, key]);
  }

  get compiled(): Readonly<Record<"compiled" | "cached", number>> {
    return this.#compiler.counts;
  }

  describe(): DeviceInfo {
    this.#enter();
    return this.#description;
  }

  memory(): MemoryInfo {
    this.#enter();
    const { address } = this.#out;
    this.#cuda.driver.cuMemGetInfo_v2(address, address + 8);
    return { free: bytes(this.#out.u64()), total: bytes(this.#out.u64(8)) };
  }

  reserve(size: Bytes): Span {
    this.#enter();
    this.#rejectInCapture("reserve");
    return this.#memory.reserve(size);
  }

  commit(part: Span): void {
    this.#enter();
    this.#rejectInCapture("commit");
    this.#memory.commit(part);
    this.#checker?.addPool(part);
  }

  release(reservation: Span): void {
    this.#enter();
    this.#rejectInCapture("release");
    this.#memory.book.requireReserved(reservation);
    this.#finishEverything();
    this.#checker?.removePools(reservation);
    this.#deaths++;
    this.#memory.release(reservation);
  }

  allocateHost(size: Bytes): HostMemory {
    this.#enter();
    this.#rejectInCapture("allocateHost");
    requireHostSize(size);
    this.#cuda.driver.cuMemHostAlloc(this.#out.address, size, 0);
    const address = this.#out.u64();
    const view = new Uint8Array(loadKoffi().view(BigInt(address), size));
    const id = this.#hosts.nextId();
    return this.#hosts.open({ type: "host", id, size }, { address, bytes: view });
  }

  hostBytes(range: HostSpan): Uint8Array {
    const { bytes: all } = this.#hosts.get(range.memory);
    const offset = requireHostSpan(range, all.length);
    return all.subarray(offset, offset + range.size);
  }

  /** Copies under way must be over before their memory goes. */
  freeHost(memory: HostMemory): void {
    const { address } = this.#hosts.get(memory);
    this.#enter();
    this.#rejectInCapture("freeHost");
    this.#finishEverything();
    this.#cuda.driver.cuMemFreeHost(address);
    this.#hosts.close(memory);
    this.#deaths++;
  }

  createStream({ isFirst = false }: StreamOptions = {}): Stream {
    this.#enter();
    const priority = isFirst ? streamPriority.first : streamPriority.usual;
    this.#cuda.driver.cuStreamCreateWithPriority(this.#out.address, streamFlag.NON_BLOCKING, priority);
    return this.#streams.open({ type: "stream", id: this.#streams.nextId() }, this.#out.u64());
  }

  destroyStream(stream: Stream): void {
    const own = this.#streams.get(stream);
    this.#enter();
    this.#rejectInCapture(`destroyStream(stream #${stream.id})`);
    this.#cuda.driver.cuStreamSynchronize(own);
    this.#cuda.driver.cuStreamDestroy_v2(own);
    this.#streams.close(stream);
  }

  createEvent(): Event {
    this.#enter();
    this.#cuda.driver.cuEventCreate(this.#out.address, eventFlag.DISABLE_TIMING);
    return this.#events.open({ type: "event", id: this.#events.nextId() }, this.#out.u64());
  }

  destroyEvent(event: Event): void {
    const own = this.#events.get(event);
    this.#enter();
    this.#cuda.driver.cuEventDestroy_v2(own);
    this.#events.close(event);
    this.#capturedEvents.delete(event);
  }

  recordEvent(event: Event, stream: Stream): void {
    const [mark, own] = [this.#events.get(event), this.#streams.get(stream)];
    this.#enter();
    const capture = this.#captureOf(stream);
    this.#cuda.driver.cuEventRecord(mark, own);
    if (capture) {
      capture.record(event);
      this.#capturedEvents.add(event);
    } else this.#capturedEvents.delete(event);
  }

  waitEvent(stream: Stream, event: Event): void {
    const [own, mark] = [this.#streams.get(stream), this.#events.get(event)];
    this.#enter();
    const capture = this.#capture;
    if (this.#capturedEvents.has(event)) {
      if (!capture?.holdsEvent(event)) throw capturedEvent(event);
      capture.requireUnspoiled();
      this.#cuda.driver.cuStreamWaitEvent(own, mark, 0);
      capture.join(stream);
      return;
    }
    if (capture?.includes(stream)) {
      const call = `waitEvent(stream #${stream.id}, event #${event.id}), the event being from outside,`;
      capture.reject(call, "synchronise with outside work first.");
    }
    this.#cuda.driver.cuStreamWaitEvent(own, mark, 0);
  }

  isReached(event: Event): boolean {
    const mark = this.#markOutsideCapture(event, "isReached");
    const status = this.#cuda.driver.status.cuEventQuery(mark);
    if (status === cudaStatus.ERROR_NOT_READY) return false;
    // A failure stays one: asked again, it says what it is.
    if (status !== cudaStatus.SUCCESS) this.#cuda.driver.cuEventQuery(mark);
    return true;
  }

  synchronizeEvent(event: Event): void {
    this.#cuda.driver.cuEventSynchronize(this.#markOutsideCapture(event, "synchronizeEvent"));
  }

  synchronize(stream: Stream): void {
    const own = this.#streams.get(stream);
    this.#enter();
    this.#rejectInCapture(`synchronize(stream #${stream.id})`);
    this.#cuda.driver.cuStreamSynchronize(own);
  }

  copyToDevice(stream: Stream, target: Span, source: HostSpan): void {
    const own = this.#streams.get(stream);
    const host = this.#hosts.get(source.memory);
    requireSameSize("copyToDevice", target.size, source.size);
    const offset = requireHostSpan(source, host.bytes.length);
    this.#touch(stream, target, "copyToDevice's target");
    this.#captureOf(stream)?.hosts.add(source.memory);
    if (target.size === 0) return;
    this.#cuda.driver.cuMemcpyHtoDAsync_v2(target.address, host.address + offset, target.size, own);
  }

  copyToHost(stream: Stream, target: HostSpan, source: Span): void {
    const own = this.#streams.get(stream);
    const host = this.#hosts.get(target.memory);
    requireSameSize("copyToHost", target.size, source.size);
    const offset = requireHostSpan(target, host.bytes.length);
    this.#touch(stream, source, "copyToHost's source");
    this.#captureOf(stream)?.hosts.add(target.memory);
    if (source.size === 0) return;
    this.#cuda.driver.cuMemcpyDtoHAsync_v2(host.address + offset, source.address, source.size, own);
  }

  copyOnDevice(stream: Stream, target: Span, source: Span): void {
    const own = this.#streams.get(stream);
    requireSameSize("copyOnDevice", target.size, source.size);
    this.#touch(stream, target, "copyOnDevice's target");
    this.#touch(stream, source, "copyOnDevice's source");
    if (target.size === 0) return;
    this.#cuda.driver.cuMemcpyDtoDAsync_v2(target.address, source.address, target.size, own);
  }

  fill(stream: Stream, target: Span, byte: number): void {
    const own = this.#streams.get(stream);
    requireByte(byte);
    this.#touch(stream, target, "fill's target");
    if (target.size === 0) return;
    this.#cuda.driver.cuMemsetD8Async(target.address, byte, target.size, own);
  }

  loadKernel(source: KernelSource): Kernel {
    this.#enter();
    this.#rejectInCapture("loadKernel");
    const loaded = source.product
      ? this.#products.load(source, source.product)
      : loadCode(this.#cuda, this.#compiler, source);
    const { parameters, workspaceBytes, choices } = loaded;
    const id = this.#kernels.nextId();
    return this.#kernels.open(
      { type: "kernel", id, name: source.name, parameters: [...parameters], workspaceBytes, choices },
      loaded,
    );
  }

  unloadKernel(kernel: Kernel): void {
    const loaded = this.#kernels.get(kernel);
    this.#enter();
    this.#rejectInCapture("unloadKernel");
    this.#finishEverything();
    loaded.unload();
    this.#kernels.close(kernel);
    this.#deaths++;
  }

  launch(stream: Stream, launch: Launch): void {
    const own = this.#streams.get(stream);
    const loaded = this.#kernels.get(launch.kernel);
    this.#enter();
    const { book } = this.#memory;
    const capture = this.#captureOf(stream);
    if (!capture) {
      loaded.launch(own, launch, book, undefined);
      return;
    }
    const before = loaded.isLibrary ? this.#countRecorded(own) : 0;
    loaded.launch(own, launch, book, capture.spans);
    if (loaded.isLibrary) capture.extraNodes += this.#countRecorded(own) - before - 1;
    capture.kernels.add(launch.kernel);
  }

  beginCapture(stream: Stream, _mode: CaptureMode): void {
    const own = this.#streams.get(stream);
    this.#enter();
    if (this.#capture) throw begunTwice(stream, this.#capture.origin);
    this.#cuda.driver.cuStreamBeginCapture_v2(own, captureMode.THREAD_LOCAL);
    this.#capture = new CudaCapture(stream);
  }

  endCapture(stream: Stream): Graph {
    const own = this.#streams.get(stream);
    this.#enter();
    const capture = this.#capture;
    if (capture?.origin !== stream) throw notBegun(stream, capture?.origin);
    // Whatever CUDA says, the capture is over.
    this.#capture = undefined;
    this.#out.setU64(0);
    try {
      this.#cuda.driver.cuStreamEndCapture(own, this.#out.address);
    } catch (error) {
      this.#abandonCapture(own);
      capture.requireUnspoiled();
      throw isStatus(error, cudaStatus.ERROR_STREAM_CAPTURE_UNJOINED) ? unjoined(stream, error) : error;
    }
    const graph = this.#out.u64();
    try {
      capture.requireUnspoiled();
      const nodes = countNodes(this.#cuda, graph, this.#out);
      const id = this.#graphs.nextId();
      const { spans, kernels, hosts, extraNodes } = capture;
      return this.#graphs.open(
        { type: "graph", id, nodes: { ...nodes, kernel: nodes.kernel - extraNodes } },
        new CudaGraph(this.#cuda, id, graph, own, { spans, kernels, hosts }),
      );
    } catch (error) {
      this.#cuda.driver.cuGraphDestroy(graph);
      throw error;
    }
  }

  instantiate(graph: Graph): void {
    const own = this.#graphs.get(graph);
    this.#enter();
    this.#rejectInCapture("instantiate");
    own.instantiate(this.#out);
  }

  launchGraph(stream: Stream, graph: Graph): void {
    const own = this.#streams.get(stream);
    const recorded = this.#graphs.get(graph);
    this.#enter();
    this.#rejectOnCapturing(stream, "launchGraph");
    recorded.launch(own, this.#deaths, this.#inventory);
  }

  destroyGraph(graph: Graph): void {
    const own = this.#graphs.get(graph);
    this.#enter();
    own.destroy();
    this.#graphs.close(graph);
  }

  /** Ends everything that is left, so that the device's memory is free for others while this process lives on. */
  close(): void {
    if (this.#isClosed) return;
    this.#enter();
    this.#isClosed = true;
    const { driver } = this.#cuda;
    if (this.#capture) this.#abandonCapture(this.#streams.get(this.#capture.origin));
    this.#capture = undefined;
    const attempts = [
      () => this.#finishEverything(),
      ...[...this.#graphs.states()].map((graph) => () => graph.destroy()),
      ...[...this.#kernels.states()].map((kernel) => () => kernel.unload()),
      () => this.#products.close(),
      () => this.#compiler.close(),
      ...[...this.#events.states()].map((event) => () => driver.cuEventDestroy_v2(event)),
      ...[...this.#streams.states()].map((stream) => () => driver.cuStreamDestroy_v2(stream)),
      ...[...this.#hosts.states()].map(
        ({ address }) =>
          () =>
            driver.cuMemFreeHost(address),
      ),
      () => this.#checker?.close(),
      () => this.#memory.close(),
      () => this.#opened.release(),
    ];
    let failure: unknown;
    for (const attempt of attempts) {
      try {
        attempt();
      } catch (error) {
        failure ??= error;
      }
    }
    for (const table of [this.#streams, this.#events, this.#kernels, this.#graphs, this.#hosts])
      table.closeAll();
    this.#out.free();
    if (failure) throw failure;
  }

  /** CUDA calls work on the thread's present context, which another open device may have made its own. */
  #enter(): void {
    if (this.#isClosed) {
      throw new HoldfastError("CLOSED", "The CUDA driver is closed. Open a new one with openCudaDriver().");
    }
    this.#opened.use();
  }

  /** The tool looks at what is in use while a kernel runs, so what dies must not be in a kernel's hands any more. */
  #tellChecker(checker: MemoryChecker, range: Span, state: "live" | "dead"): void {
    this.#enter();
    if (state === "dead" && !this.#capture) this.#finishEverything();
    checker.mark(range, state);
  }

  #touch(stream: Stream, span: Span, what: string): void {
    this.#enter();
    requireLive(this.#memory.book, span, what);
    this.#captureOf(stream)?.spans.push(span);
  }

  /** The open capture, if the stream's work goes there. */
  #captureOf(stream: Stream): CudaCapture | undefined {
    if (!this.#capture?.includes(stream)) return undefined;
    this.#capture.requireUnspoiled();
    return this.#capture;
  }

  /** How many nodes the stream's capture has recorded so far. */
  #countRecorded(stream: number): number {
    const { address } = this.#out;
    const graph = 16;
    this.#cuda.driver.cuStreamGetCaptureInfo_v2(
      stream,
      address,
      address + 8,
      address + graph,
      address + 24,
      address + 32,
    );
    return countAllNodes(this.#cuda, this.#out.u64(graph), this.#out);
  }

  /** Ends a capture that is still open, if it is: it would make everything behind it illegal. */
  #abandonCapture(stream: number): void {
    const { status } = this.#cuda.driver;
    this.#out.setU64(0);
    status.cuStreamEndCapture(stream, this.#out.address);
    const graph = this.#out.u64();
    if (graph !== 0) status.cuGraphDestroy(graph);
  }

  /** Before memory or a kernel goes, what was issued for it must be over. */
  #finishEverything(): void {
    for (const stream of this.#streams.states()) this.#cuda.driver.cuStreamSynchronize(stream);
  }

  #markOutsideCapture(event: Event, call: string): number {
    const mark = this.#events.get(event);
    this.#enter();
    this.#rejectInCapture(`${call}(event #${event.id})`);
    if (this.#capturedEvents.has(event)) throw capturedEvent(event);
    return mark;
  }

  /** Also on a stream beside the capture: CUDA lets a thread that captures wait for nothing and ask for nothing. */
  #rejectInCapture(call: string): void {
    this.#capture?.reject(call, "do it before beginCapture or after endCapture.");
  }

  #rejectOnCapturing(stream: Stream, call: string): void {
    if (!this.#capture?.includes(stream)) return;
    this.#capture.reject(`${call}(stream #${stream.id})`, "do it before beginCapture or after endCapture.");
  }
}

function isStatus(error: unknown, status: number): boolean {
  return error instanceof HoldfastError && error.numbers["status"] === status;
}

function unjoined(stream: Stream, cause: unknown): HoldfastError {
  const message = `The capture on stream #${stream.id} ended with work of another stream that it never waited for. Before the end, record an event on that stream and let stream #${stream.id} wait for it.`;
  return new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id }, cause });
}
