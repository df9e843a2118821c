/**
 * An NVIDIA GPU as a device, through the driver API. This file has its kernels and graphs by handle. Streams, copies,
 * device memory, code and GEMMs have their own files.
 *
 * All work runs in the device's primary context, which the CUDA libraries share. Streams are non-blocking: they do not
 * synchronize with the default stream, which is unused.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes, GiB, runAll, type Span } from "../../units/index.js";
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
  NodeCount,
  Stream,
  StreamOptions,
} from "../driver.js";
import { HandleTable } from "../handles.js";
import { readHostThreads } from "../host-threads.js";
import type { Cuda } from "./calls.js";
import { noNodes, subtractNodes } from "./capture.js";
import { Compiler } from "./compiler.js";
import { CudaCopies } from "./copies.js";
import { type CubinCache, openCubinCache } from "./cubin-cache.js";
import { CublasLt } from "./cublaslt.js";
import { type OpenedDevice, openDevice, supportsPdl } from "./devices.js";
import { loadEnqueued } from "./enqueued.js";
import { CudaGraph, countNodes, type LiveResources } from "./graph.js";
import { type LoadedKernel, loadCode } from "./kernels.js";
import { cublasLtVersion, nvrtcVersion } from "./library-versions.js";
import { type CudaMemory, openMemory } from "./memory.js";
import { type MemoryChecker, openMemoryChecker } from "./memory-checker.js";
import { NativeBuffer } from "./native-buffer.js";
import { type CudaContext, CudaStreams } from "./streams.js";

/** Address space costs nothing until memory is committed. */
const addressSpace = bytes(16 * 1024 * GiB);

/** Options of `openCudaDriver`. */
export interface CudaDriverOptions {
  /** Index of the GPU, as in `listCudaDevices`, or a function that chooses it by their number. Default: 0. */
  readonly index?: number | ((visible: number) => number);
  /** Folder for compiled kernels; "off" compiles them every time. */
  readonly cacheFolder?: string;
  /**
   * "plain" uses whole allocations, as on devices without the virtual memory API. Default: "auto", which does so under
   * a memory checking tool too.
   */
  readonly allocation?: "auto" | "plain";
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Threads that compile kernels. Default: all threads of the host, at most 9. */
  readonly threads?: number;
}

/** The driver of an NVIDIA GPU. */
export interface CudaDriver extends Driver {
  /** Kernels compiled since the start, and kernels loaded from the cache. */
  readonly compiled: Readonly<Record<"compiled" | "cached", number>>;
}

/**
 * Opens a GPU. Throws NO_CUDA if no GPU is usable; the error names the missing component.
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
 *   if (error instanceof HoldfastError) console.error(error.message); // what is missing, and which package has it
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
  readonly #out = new NativeBuffer(128);
  readonly #streams: CudaStreams;
  readonly #copies: CudaCopies;
  readonly #kernels = new HandleTable<Kernel, LoadedKernel>("Kernel");
  readonly #graphs = new HandleTable<Graph, CudaGraph>("Graph");
  /** For graphs, which may outlive the memory and kernels that they use. */
  readonly #liveResources: LiveResources = {
    holds: (span) => this.#memory.reservations.holds(span),
    isLoaded: (kernel) => this.#kernels.has(kernel),
    isAllocated: (host) => this.#copies.isAllocated(host),
  };
  readonly #cache: CubinCache;
  /** Part of the key of every note. */
  #versions: string | undefined;
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
    const context: CudaContext = { cuda, out: this.#out, enter: () => this.#enter() };
    this.#streams = new CudaStreams(context);
    this.#cache = openCubinCache(cacheFolder);
    try {
      this.#checker = openMemoryChecker(cuda, environment);
      this.#memory = openMemory(cuda, ordinal, this.#checker ? "plain" : allocation);
      this.#copies = new CudaCopies(context, this.#streams, this.#memory.reservations);
      this.#compiler = new Compiler({
        cuda,
        computeCapability: info.computeCapability,
        driverVersion: info.driverVersion,
        cache: this.#cache,
        threads: options.threads ?? readHostThreads().threads,
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
      index: info.index,
      memory: info.isIntegrated ? "unified" : "discrete",
      addressSpace: canCommitInParts ? addressSpace : info.totalBytes,
      granularity,
      canCommitInParts,
      parallelism: info.multiprocessors,
      computeCapability: info.computeCapability,
      sharedBytesPerBlock: info.sharedBytesPerBlock,
      supportsPdl: supportsPdl(info),
      uuid: info.uuid,
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
    this.#versions ??= this.#describeVersions();
    return this.#cache.makeKey(["note", this.#versions, key]);
  }

  /** Measurements and the algorithms' order can differ with another device, driver or library. */
  #describeVersions(): string {
    const { cuda, info } = this.#opened;
    const libraries = [() => nvrtcVersion(cuda.nvrtc), () => cublasLtVersion(cuda.cublasLt)].map((read) => {
      try {
        return read();
      } catch (error) {
        if (error instanceof HoldfastError) return "missing";
        throw error;
      }
    });
    const [nvrtc, cublasLt] = libraries;
    return `${info.name}, driver ${info.driverVersion}, NVRTC ${nvrtc}, cuBLASLt ${cublasLt}`;
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
    this.#streams.rejectInCapture("reserve");
    return this.#memory.reserve(size);
  }

  commit(range: Span): void {
    this.#enter();
    this.#streams.rejectInCapture("commit");
    this.#memory.commit(range);
    this.#checker?.addPool(range);
  }

  release(reservation: Span): void {
    this.#enter();
    this.#streams.rejectInCapture("release");
    this.#memory.reservations.requireReserved(reservation);
    this.#streams.synchronizeAll();
    this.#checker?.removePools(reservation);
    this.#invalidations++;
    this.#memory.release(reservation);
  }

  allocateHost(size: Bytes): HostMemory {
    return this.#copies.allocateHost(size);
  }

  hostBytes(range: HostSpan): Uint8Array {
    return this.#copies.hostBytes(range);
  }

  freeHost(memory: HostMemory): void {
    this.#copies.freeHost(memory);
    this.#invalidations++;
  }

  createStream(options?: StreamOptions): Stream {
    return this.#streams.create(options);
  }

  destroyStream(stream: Stream): void {
    this.#streams.destroy(stream);
  }

  createEvent(): Event {
    return this.#streams.createEvent();
  }

  destroyEvent(event: Event): void {
    this.#streams.destroyEvent(event);
  }

  recordEvent(event: Event, stream: Stream): void {
    this.#streams.recordEvent(event, stream);
  }

  waitEvent(stream: Stream, event: Event): void {
    this.#streams.waitEvent(stream, event);
  }

  isReached(event: Event): boolean {
    return this.#streams.isReached(event);
  }

  synchronizeEvent(event: Event): void {
    this.#streams.synchronizeEvent(event);
  }

  synchronize(stream: Stream): void {
    this.#streams.synchronize(stream);
  }

  copyToDevice(stream: Stream, target: Span, source: HostSpan): void {
    this.#copies.copyToDevice(stream, target, source);
  }

  copyToHost(stream: Stream, target: HostSpan, source: Span): void {
    this.#copies.copyToHost(stream, target, source);
  }

  copyOnDevice(stream: Stream, target: Span, source: Span): void {
    this.#copies.copyOnDevice(stream, target, source);
  }

  fill(stream: Stream, target: Span, byte: number): void {
    this.#copies.fill(stream, target, byte);
  }

  compileKernels(sources: readonly KernelSource[]): void {
    this.#enter();
    this.#streams.rejectInCapture("compileKernels");
    this.#compiler.compileAll(
      sources.flatMap(({ name, gemm, cuda: code }) => (code && !gemm ? [{ name, code }] : [])),
    );
  }

  loadKernel(source: KernelSource): Kernel {
    this.#enter();
    this.#streams.rejectInCapture("loadKernel");
    const loaded = this.#load(source);
    const { parameters, workspaceBytes, algorithmCount } = loaded;
    const { early = [] } = source.cuda ?? {};
    const id = this.#kernels.nextId();
    return this.#kernels.open(
      {
        ...{ type: "kernel", id, name: source.name, parameters: [...parameters] },
        ...{ workspaceBytes, algorithmCount, early },
      },
      loaded,
    );
  }

  #load(source: KernelSource): LoadedKernel {
    if (source.gemm) return this.#cublasLt.load(source, source.gemm);
    if (source.enqueue) return loadEnqueued(source, source.enqueue);
    return loadCode(this.#cuda, this.#compiler, source);
  }

  unloadKernel(kernel: Kernel): void {
    const loaded = this.#kernels.get(kernel);
    this.#enter();
    this.#streams.rejectInCapture("unloadKernel");
    this.#streams.synchronizeAll();
    loaded.unload();
    this.#kernels.close(kernel);
    this.#invalidations++;
  }

  launch(stream: Stream, launch: Launch): void {
    const cuStream = this.#streams.handleOf(stream);
    const loaded = this.#kernels.get(launch.kernel);
    this.#enter();
    const { reservations } = this.#memory;
    const capture = this.#streams.captureOf(stream);
    if (!capture) {
      loaded.launch(cuStream, launch, reservations, undefined);
      return;
    }
    const count = (): NodeCount => this.#countRecorded(stream, loaded);
    const before = count();
    try {
      loaded.launch(cuStream, launch, reservations, capture.spans);
    } catch (error) {
      throw loaded.recordedNodes === "any" ? notRecorded(launch.kernel.name, error) : error;
    }
    capture.kernels.add(launch.kernel);
    if (loaded.recordedNodes !== "one kernel") capture.countAsKernel(before, count());
  }

  /** The nodes of the stream's capture, as far as they are needed to count the kernel's own. A GEMM has only kernels, which are counted fast. */
  #countRecorded(stream: Stream, { recordedNodes }: LoadedKernel): NodeCount {
    if (recordedNodes === "one kernel") return noNodes;
    if (recordedNodes === "kernels") return { ...noNodes, kernel: this.#streams.countRecordedNodes(stream) };
    return countNodes(this.#cuda, this.#streams.recordedGraph(stream), this.#out);
  }

  beginCapture(stream: Stream, _mode: CaptureMode): void {
    this.#streams.beginCapture(stream);
  }

  endCapture(stream: Stream): Graph {
    const { capture, graph, stream: cuStream } = this.#streams.endCapture(stream);
    try {
      capture.requireValid();
      const nodes = countNodes(this.#cuda, graph, this.#out);
      const id = this.#graphs.nextId();
      const { spans, kernels, hosts, extraNodes } = capture;
      return this.#graphs.open(
        { type: "graph", id, nodes: subtractNodes(nodes, extraNodes) },
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
    this.#streams.rejectInCapture("instantiate");
    cuGraph.instantiate(this.#out);
  }

  launchGraph(stream: Stream, graph: Graph): void {
    const cuStream = this.#streams.handleOf(stream);
    const recorded = this.#graphs.get(graph);
    this.#enter();
    this.#streams.rejectOnCapturedStream(stream, "launchGraph");
    recorded.launch(cuStream, this.#invalidations, this.#liveResources);
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
    this.#streams.abandonCapture();
    runAll([
      () => this.#streams.synchronizeAll(),
      ...[...this.#graphs.states()].map((graph) => () => graph.destroy()),
      ...[...this.#kernels.states()].map((kernel) => () => kernel.unload()),
      () => this.#cublasLt.close(),
      ...this.#streams.closing(),
      ...this.#copies.closing(),
      () => this.#checker?.close(),
      () => this.#memory.close(),
      () => this.#opened.release(),
      ...[this.#kernels, this.#graphs].map((table) => () => table.closeAll()),
      () => this.#out.free(),
    ]);
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
    if (state === "dead" && !this.#streams.isCapturing) this.#streams.synchronizeAll();
    checker.setState(range, state);
  }
}

/** The library's failure may be that it can't be captured: then the work runs directly. */
function notRecorded(kernel: string, error: unknown): unknown {
  if (!(error instanceof HoldfastError && error.code === "DRIVER_FAILED")) return error;
  const message = `Kernel "${kernel}" can't be recorded in a capture: ${error.message} If it always fails in captures, set HOLDFAST_CAPTURE=off.`;
  return new HoldfastError("CAPTURE_REJECTED", message, { numbers: { kernel }, cause: error });
}
