/**
 * An NVIDIA GPU as a device, through the driver API: handles, ordering, and what a capture rejects. Memory, kernels,
 * GEMMs and graphs have their own files.
 *
 * All work runs in the device's primary context, which the CUDA libraries share. Streams are non-blocking: they do not
 * synchronize with the default stream, which is unused.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes, GiB, type Span } from "../../units/index.js";
import { captureAlreadyOpen, capturedEvent, captureNotOpen } from "../capture-rejections.js";
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
import { CublasLt } from "./cublaslt.js";
import { type OpenedDevice, openDevice, supportsPdl } from "./devices.js";
import { CudaGraph, countAllNodes, countNodes, type Inventory } from "./graph.js";
import { type LoadedKernel, loadCode } from "./kernels.js";
import { type CudaMemory, openMemory } from "./memory.js";
import { type MemoryChecker, openMemoryChecker } from "./memory-checker.js";
import { OutBlock } from "./out-block.js";
import { requireLive } from "./spans.js";

/** Address space costs nothing until memory is committed. */
const addressSpace = bytes(16 * 1024 * GiB);

/** Options of `openCudaDriver`. */
export interface CudaDriverOptions {
  /** Index of the GPU, as in `listCudaDevices`. Default: 0. */
  readonly index?: number;
  /** Folder for compiled kernels; "off" compiles them every time. */
  readonly cacheFolder?: string;
  /** "plain" uses whole allocations, as on devices without the virtual memory API. Default: "auto". */
  readonly allocation?: "auto" | "plain";
  readonly environment?: Readonly<Record<string, string | undefined>>;
}

/** The driver of an NVIDIA GPU. */
export interface CudaDriver extends Driver {
  /** Kernels compiled since the start, and kernels loaded from the cache. */
  readonly compiled: Readonly<Record<"compiled" | "cached", number>>;
}

interface HostBuffer {
  readonly address: number;
  readonly bytes: Uint8Array;
}

/**
 * Opens a GPU. Throws NO_CUDA, with what is missing, if no GPU is usable.
 *
 * @example
 * ```ts
 * import { HoldfastError } from "holdfast";
 * import { openCudaDriver } from "holdfast/internals";
 * try {
 *   const driver = openCudaDriver({ index: 0 });
 *   console.error(driver.describe().name);
 *   driver.close();
 * } catch (error) {
 *   if (error instanceof HoldfastError) console.error(error.message); // no GPU here: what is missing, and which package has it
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
  readonly #cublasLt: CublasLt;
  readonly #out = new OutBlock(128);
  readonly #streams = new HandleTable<Stream, number>("Stream");
  readonly #events = new HandleTable<Event, number>("Event");
  readonly #kernels = new HandleTable<Kernel, LoadedKernel>("Kernel");
  readonly #graphs = new HandleTable<Graph, CudaGraph>("Graph");
  readonly #hosts = new HandleTable<HostMemory, HostBuffer>("Host memory");
  /** Events last recorded in a capture: no running work completes them. */
  readonly #capturedEvents = new Set<Event>();
  /** For graphs, which may outlive what they access. */
  readonly #inventory: Inventory = {
    holds: (span) => this.#memory.reservations.holds(span),
    isLoaded: (kernel) => this.#kernels.has(kernel),
    isAllocated: (host) => this.#hosts.has(host),
  };
  readonly #cache: CubinCache;
  /** Notes depend on the versions: the same device may be faster at something else with another driver. */
  readonly #versions: string;
  #capture: CudaCapture | undefined;
  /** Counts events that can break a graph. */
  #invalidations = 0;
  #isClosed = false;
  /** Present only if a memory checking tool is attached. */
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
      this.#cublasLt = new CublasLt(cuda);
    } catch (error) {
      opened.release();
      this.#out.free();
      throw error;
    }
    const checker = this.#checker;
    if (checker) this.annotate = (range, state) => this.#notifyChecker(checker, range, state);
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
    return this.#cache.makeKey(["note", this.#versions, key]);
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

  commit(range: Span): void {
    this.#enter();
    this.#rejectInCapture("commit");
    this.#memory.commit(range);
    this.#checker?.addPool(range);
  }

  release(reservation: Span): void {
    this.#enter();
    this.#rejectInCapture("release");
    this.#memory.reservations.requireReserved(reservation);
    this.#synchronizeAll();
    this.#checker?.removePools(reservation);
    this.#invalidations++;
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

  /** Copies in progress must complete before their memory is freed. */
  freeHost(memory: HostMemory): void {
    const { address } = this.#hosts.get(memory);
    this.#enter();
    this.#rejectInCapture("freeHost");
    this.#synchronizeAll();
    this.#cuda.driver.cuMemFreeHost(address);
    this.#hosts.close(memory);
    this.#invalidations++;
  }

  createStream({ isHighPriority = false }: StreamOptions = {}): Stream {
    this.#enter();
    const priority = isHighPriority ? streamPriority.high : streamPriority.normal;
    this.#cuda.driver.cuStreamCreateWithPriority(this.#out.address, streamFlag.NON_BLOCKING, priority);
    return this.#streams.open({ type: "stream", id: this.#streams.nextId() }, this.#out.u64());
  }

  destroyStream(stream: Stream): void {
    const cuStream = this.#streams.get(stream);
    this.#enter();
    this.#rejectInCapture(`destroyStream(stream #${stream.id})`);
    this.#cuda.driver.cuStreamSynchronize(cuStream);
    this.#cuda.driver.cuStreamDestroy_v2(cuStream);
    this.#streams.close(stream);
  }

  createEvent(): Event {
    this.#enter();
    this.#cuda.driver.cuEventCreate(this.#out.address, eventFlag.DISABLE_TIMING);
    return this.#events.open({ type: "event", id: this.#events.nextId() }, this.#out.u64());
  }

  destroyEvent(event: Event): void {
    const cuEvent = this.#events.get(event);
    this.#enter();
    this.#cuda.driver.cuEventDestroy_v2(cuEvent);
    this.#events.close(event);
    this.#capturedEvents.delete(event);
  }

  recordEvent(event: Event, stream: Stream): void {
    const [cuEvent, cuStream] = [this.#events.get(event), this.#streams.get(stream)];
    this.#enter();
    const capture = this.#findCapture(stream);
    this.#cuda.driver.cuEventRecord(cuEvent, cuStream);
    if (capture) {
      capture.record(event);
      this.#capturedEvents.add(event);
    } else this.#capturedEvents.delete(event);
  }

  waitEvent(stream: Stream, event: Event): void {
    const [cuStream, cuEvent] = [this.#streams.get(stream), this.#events.get(event)];
    this.#enter();
    const capture = this.#capture;
    if (this.#capturedEvents.has(event)) {
      if (!capture?.holdsEvent(event)) throw capturedEvent(event);
      capture.requireValid();
      this.#cuda.driver.cuStreamWaitEvent(cuStream, cuEvent, 0);
      capture.join(stream);
      return;
    }
    if (capture?.includes(stream)) {
      const call = `waitEvent(stream #${stream.id}, event #${event.id}), whose event was recorded outside it,`;
      capture.reject(call, "synchronize with that work before beginCapture.");
    }
    this.#cuda.driver.cuStreamWaitEvent(cuStream, cuEvent, 0);
  }

  isReached(event: Event): boolean {
    const cuEvent = this.#eventOutsideCapture(event, "isReached");
    const status = this.#cuda.driver.status.cuEventQuery(cuEvent);
    if (status === cudaStatus.ERROR_NOT_READY) return false;
    // The throwing variant reports the failure with its explanation.
    if (status !== cudaStatus.SUCCESS) this.#cuda.driver.cuEventQuery(cuEvent);
    return true;
  }

  synchronizeEvent(event: Event): void {
    this.#cuda.driver.cuEventSynchronize(this.#eventOutsideCapture(event, "synchronizeEvent"));
  }

  synchronize(stream: Stream): void {
    const cuStream = this.#streams.get(stream);
    this.#enter();
    this.#rejectInCapture(`synchronize(stream #${stream.id})`);
    this.#cuda.driver.cuStreamSynchronize(cuStream);
  }

  copyToDevice(stream: Stream, target: Span, source: HostSpan): void {
    const cuStream = this.#streams.get(stream);
    const host = this.#hosts.get(source.memory);
    requireSameSize("copyToDevice", target.size, source.size);
    const offset = requireHostSpan(source, host.bytes.length);
    this.#touch(stream, target, "copyToDevice's target");
    this.#findCapture(stream)?.hosts.add(source.memory);
    if (target.size === 0) return;
    this.#cuda.driver.cuMemcpyHtoDAsync_v2(target.address, host.address + offset, target.size, cuStream);
  }

  copyToHost(stream: Stream, target: HostSpan, source: Span): void {
    const cuStream = this.#streams.get(stream);
    const host = this.#hosts.get(target.memory);
    requireSameSize("copyToHost", target.size, source.size);
    const offset = requireHostSpan(target, host.bytes.length);
    this.#touch(stream, source, "copyToHost's source");
    this.#findCapture(stream)?.hosts.add(target.memory);
    if (source.size === 0) return;
    this.#cuda.driver.cuMemcpyDtoHAsync_v2(host.address + offset, source.address, source.size, cuStream);
  }

  copyOnDevice(stream: Stream, target: Span, source: Span): void {
    const cuStream = this.#streams.get(stream);
    requireSameSize("copyOnDevice", target.size, source.size);
    this.#touch(stream, target, "copyOnDevice's target");
    this.#touch(stream, source, "copyOnDevice's source");
    if (target.size === 0) return;
    this.#cuda.driver.cuMemcpyDtoDAsync_v2(target.address, source.address, target.size, cuStream);
  }

  fill(stream: Stream, target: Span, byte: number): void {
    const cuStream = this.#streams.get(stream);
    requireByte(byte);
    this.#touch(stream, target, "fill's target");
    if (target.size === 0) return;
    this.#cuda.driver.cuMemsetD8Async(target.address, byte, target.size, cuStream);
  }

  loadKernel(source: KernelSource): Kernel {
    this.#enter();
    this.#rejectInCapture("loadKernel");
    const loaded = source.gemm
      ? this.#cublasLt.load(source, source.gemm)
      : loadCode(this.#cuda, this.#compiler, source);
    const { parameters, workspaceBytes, algorithmCount } = loaded;
    const id = this.#kernels.nextId();
    return this.#kernels.open(
      { type: "kernel", id, name: source.name, parameters: [...parameters], workspaceBytes, algorithmCount },
      loaded,
    );
  }

  unloadKernel(kernel: Kernel): void {
    const loaded = this.#kernels.get(kernel);
    this.#enter();
    this.#rejectInCapture("unloadKernel");
    this.#synchronizeAll();
    loaded.unload();
    this.#kernels.close(kernel);
    this.#invalidations++;
  }

  launch(stream: Stream, launch: Launch): void {
    const cuStream = this.#streams.get(stream);
    const loaded = this.#kernels.get(launch.kernel);
    this.#enter();
    const { reservations } = this.#memory;
    const capture = this.#findCapture(stream);
    if (!capture) {
      loaded.launch(cuStream, launch, reservations, undefined);
      return;
    }
    const before = loaded.isLibrary ? this.#countRecorded(cuStream) : 0;
    loaded.launch(cuStream, launch, reservations, capture.spans);
    if (loaded.isLibrary) capture.extraNodes += this.#countRecorded(cuStream) - before - 1;
    capture.kernels.add(launch.kernel);
  }

  beginCapture(stream: Stream, _mode: CaptureMode): void {
    const cuStream = this.#streams.get(stream);
    this.#enter();
    if (this.#capture) throw captureAlreadyOpen(stream, this.#capture.origin);
    this.#cuda.driver.cuStreamBeginCapture_v2(cuStream, captureMode.THREAD_LOCAL);
    this.#capture = new CudaCapture(stream);
  }

  endCapture(stream: Stream): Graph {
    const cuStream = this.#streams.get(stream);
    this.#enter();
    const capture = this.#capture;
    if (capture?.origin !== stream) throw captureNotOpen(stream, capture?.origin);
    // Whatever CUDA returns, the capture has ended.
    this.#capture = undefined;
    this.#out.setU64(0);
    try {
      this.#cuda.driver.cuStreamEndCapture(cuStream, this.#out.address);
    } catch (error) {
      this.#abandonCapture(cuStream);
      capture.requireValid();
      throw isStatus(error, cudaStatus.ERROR_STREAM_CAPTURE_UNJOINED) ? unjoined(stream, error) : error;
    }
    const graph = this.#out.u64();
    try {
      capture.requireValid();
      const nodes = countNodes(this.#cuda, graph, this.#out);
      const id = this.#graphs.nextId();
      const { spans, kernels, hosts, extraNodes } = capture;
      return this.#graphs.open(
        { type: "graph", id, nodes: { ...nodes, kernel: nodes.kernel - extraNodes } },
        new CudaGraph(this.#cuda, id, graph, cuStream, { spans, kernels, hosts }),
      );
    } catch (error) {
      this.#cuda.driver.cuGraphDestroy(graph);
      throw error;
    }
  }

  instantiate(graph: Graph): void {
    const cuGraph = this.#graphs.get(graph);
    this.#enter();
    this.#rejectInCapture("instantiate");
    cuGraph.instantiate(this.#out);
  }

  launchGraph(stream: Stream, graph: Graph): void {
    const cuStream = this.#streams.get(stream);
    const recorded = this.#graphs.get(graph);
    this.#enter();
    this.#rejectOnCapturedStream(stream, "launchGraph");
    recorded.launch(cuStream, this.#invalidations, this.#inventory);
  }

  destroyGraph(graph: Graph): void {
    const cuGraph = this.#graphs.get(graph);
    this.#enter();
    cuGraph.destroy();
    this.#graphs.close(graph);
  }

  /** Releases everything, so that the device's memory is free for others while this process lives on. */
  close(): void {
    if (this.#isClosed) return;
    this.#enter();
    this.#isClosed = true;
    const { driver } = this.#cuda;
    if (this.#capture) this.#abandonCapture(this.#streams.get(this.#capture.origin));
    this.#capture = undefined;
    const attempts = [
      () => this.#synchronizeAll(),
      ...[...this.#graphs.states()].map((graph) => () => graph.destroy()),
      ...[...this.#kernels.states()].map((kernel) => () => kernel.unload()),
      () => this.#cublasLt.close(),
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

  /** CUDA calls use the thread's current context, which another open device may have changed. */
  #enter(): void {
    if (this.#isClosed) {
      throw new HoldfastError("CLOSED", "The CUDA driver is closed. Open a new one with openCudaDriver().");
    }
    this.#opened.use();
  }

  /** The tool checks accesses while a kernel runs, so no kernel may still use a range when it dies. */
  #notifyChecker(checker: MemoryChecker, range: Span, state: "live" | "dead"): void {
    this.#enter();
    if (state === "dead" && !this.#capture) this.#synchronizeAll();
    checker.setState(range, state);
  }

  #touch(stream: Stream, span: Span, what: string): void {
    this.#enter();
    requireLive(this.#memory.reservations, span, what);
    this.#findCapture(stream)?.spans.push(span);
  }

  /** The open capture, if the stream belongs to it. */
  #findCapture(stream: Stream): CudaCapture | undefined {
    if (!this.#capture?.includes(stream)) return undefined;
    this.#capture.requireValid();
    return this.#capture;
  }

  /** The number of nodes that the stream's capture has recorded so far. */
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

  /** Ends a capture that is still open: it would make every later call illegal. */
  #abandonCapture(stream: number): void {
    const { status } = this.#cuda.driver;
    this.#out.setU64(0);
    status.cuStreamEndCapture(stream, this.#out.address);
    const graph = this.#out.u64();
    if (graph !== 0) status.cuGraphDestroy(graph);
  }

  /** Waits for all issued work before memory or a kernel goes away. */
  #synchronizeAll(): void {
    for (const stream of this.#streams.states()) this.#cuda.driver.cuStreamSynchronize(stream);
  }

  #eventOutsideCapture(event: Event, call: string): number {
    const cuEvent = this.#events.get(event);
    this.#enter();
    this.#rejectInCapture(`${call}(event #${event.id})`);
    if (this.#capturedEvents.has(event)) throw capturedEvent(event);
    return cuEvent;
  }

  /** Rejects also calls on streams outside the capture: CUDA forbids a capturing thread to wait or query. */
  #rejectInCapture(call: string): void {
    this.#capture?.reject(call, "call it before beginCapture or after endCapture.");
  }

  #rejectOnCapturedStream(stream: Stream, call: string): void {
    if (!this.#capture?.includes(stream)) return;
    this.#capture.reject(`${call}(stream #${stream.id})`, "call it before beginCapture or after endCapture.");
  }
}

function isStatus(error: unknown, status: number): boolean {
  return error instanceof HoldfastError && error.numbers["status"] === status;
}

function unjoined(stream: Stream, cause: unknown): HoldfastError {
  const message = `The capture on stream #${stream.id} ended while work of another stream was not joined to it. Before endCapture, record an event on that stream and let stream #${stream.id} wait for it.`;
  return new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id }, cause });
}
