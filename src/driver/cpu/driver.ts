/**
 * The CPU as a device: its open handles, and the calls that a capture records or rejects. Memory, queues, captures and
 * threads have their own files.
 */

import { cpus } from "node:os";
import { HoldfastError } from "../../errors/index.js";
import { type Bytes, bytes, formatBytes, type Span } from "../../units/index.js";
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
} from "../driver.js";
import { HandleTable } from "../handles.js";
import { readHostMemory } from "../host-memory.js";
import { readHostThreads } from "../host-threads.js";
import { createLaunch, liveSpan } from "./arguments.js";
import { Capture, type CapturedPosition } from "./capture.js";
import { type Command, countNodes, Executor, type HostBuffer, type KernelState } from "./commands.js";
import { RecordedGraph } from "./graph.js";
import { compileKernel } from "./kernel.js";
import { DeviceMemory } from "./memory.js";
import { CommandQueue, type StreamPosition } from "./stream.js";
import { pageBytes } from "./wasm.js";
import { WorkerPool } from "./worker-pool.js";

/** Options of `openCpuDriver`. */
export interface CpuDriverOptions {
  /**
   * Threads that share a large launch, including the calling one. Default: the number that the system and its cgroups
   * allow.
   */
  readonly threads?: number;
  /**
   * Maximum device memory: a multiple of 64 KiB, up to 16 GiB. Default: 4 GiB − 64 KiB, which is also the limit of an engine without
   * 64-bit memory.
   */
  readonly maximumBytes?: number;
  /** True for 64-bit addresses in a memory of any size, for tests. Default: only if the memory is larger than 4 GiB. */
  readonly hasWideAddresses?: boolean;
  /** Replaces "/" when the host's figures are read. */
  readonly hostRoot?: string;
}

/** The driver of the CPU. */
export interface CpuDriver extends Driver {
  /** Committed device memory, for tests. Shows the effect of work that has run; runs nothing. */
  deviceBytes(range: Span): Uint8Array;
}

/**
 * Opens the CPU as a device.
 *
 * @example
 * ```ts
 * import { bytes, openCpuDriver } from "holdfast/internals";
 * const driver = openCpuDriver({ threads: 1 });
 * const stream = driver.createStream();
 * const memory = driver.reserve(bytes(65536));
 * driver.commit(memory);
 * driver.fill(stream, memory, 7);
 * driver.synchronize(stream);
 * console.log(driver.deviceBytes(memory)[0]); // → 7
 * driver.close();
 * ```
 */
export function openCpuDriver(options: CpuDriverOptions = {}): CpuDriver {
  return new Cpu(options);
}

interface EventState {
  /** Where it was last recorded. */
  position: StreamPosition | CapturedPosition | undefined;
}

class Cpu implements CpuDriver {
  readonly #description: DeviceInfo;
  readonly #hostRoot: string | undefined;
  readonly #memory: DeviceMemory;
  readonly #pool: WorkerPool;
  readonly #executor: Executor;
  readonly #streams = new HandleTable<Stream, CommandQueue>("Stream");
  readonly #events = new HandleTable<Event, EventState>("Event");
  readonly #kernels = new HandleTable<Kernel, KernelState>("Kernel");
  readonly #graphs = new HandleTable<Graph, RecordedGraph>("Graph");
  readonly #hosts = new HandleTable<HostMemory, HostBuffer>("Host memory");
  #capture: Capture | undefined;
  /** Counts events that can break a graph: released memory, freed host memory, unloaded kernels. */
  #invalidations = 0;
  #isClosed = false;

  constructor(options: CpuDriverOptions) {
    const { maximumBytes, hostRoot, threads = readHostThreads(hostRoot).threads } = options;
    if (!Number.isInteger(threads) || threads < 1) {
      const message = `Option threads is ${threads}; pass a whole number, 1 or more.`;
      throw new HoldfastError("BAD_SETTING", message, { numbers: { threads } });
    }
    this.#hostRoot = hostRoot;
    this.#memory = new DeviceMemory({ maximumBytes, hostRoot, isWide: options.hasWideAddresses });
    this.#description = {
      kind: "cpu",
      name: `CPU (${threads} ${threads === 1 ? "thread" : "threads"}, ${cpus()[0]?.model.trim() || process.arch})`,
      index: 0,
      memory: "host",
      addressSpace: this.#memory.limit,
      granularity: bytes(pageBytes),
      canCommitInParts: true,
      parallelism: threads,
    };
    this.#pool = new WorkerPool(threads, this.#memory.wasm);
    this.#executor = new Executor(this.#memory, this.#pool);
  }

  describe(): DeviceInfo {
    this.#requireOpen();
    return this.#description;
  }

  memory(): MemoryInfo {
    this.#requireOpen();
    return this.#memory.info();
  }

  reserve(size: Bytes): Span {
    this.#requireOpen();
    this.#rejectInCapture("reserve");
    return this.#memory.reserve(size);
  }

  commit(range: Span): void {
    this.#requireOpen();
    this.#rejectInCapture("commit");
    this.#memory.commit(range);
  }

  release(reservation: Span): void {
    this.#requireOpen();
    this.#rejectInCapture("release");
    this.#memory.requireReserved(reservation);
    this.#drainAll();
    this.#memory.release(reservation);
    this.#invalidations++;
  }

  deviceBytes(range: Span): Uint8Array {
    this.#requireOpen();
    const { address, size } = liveSpan(this.#memory, range, () => "The span of deviceBytes");
    return this.#memory.bytes.subarray(address, address + size);
  }

  allocateHost(size: Bytes): HostMemory {
    this.#requireOpen();
    this.#rejectInCapture("allocateHost");
    requireHostSize(size);
    const { available } = readHostMemory(this.#hostRoot);
    if (size > available) throw noHostMemory(size, available);
    let bytes: Uint8Array<SharedArrayBuffer>;
    try {
      bytes = new Uint8Array(new SharedArrayBuffer(size));
    } catch (cause) {
      throw noHostMemory(size, available, cause);
    }
    const id = this.#hosts.nextId();
    return this.#hosts.open({ type: "host", id, size }, { id, bytes, isFree: false });
  }

  hostBytes(range: HostSpan): Uint8Array {
    const host = this.#hosts.get(range.memory);
    const offset = requireHostSpan(range, host.bytes.length);
    return host.bytes.subarray(offset, offset + range.size);
  }

  /** Queued copies keep the bytes alive until they have run. */
  freeHost(memory: HostMemory): void {
    const host = this.#hosts.get(memory);
    this.#rejectInCapture("freeHost");
    host.isFree = true;
    this.#hosts.close(memory);
    this.#invalidations++;
  }

  createStream(): Stream {
    this.#requireOpen();
    const id = this.#streams.nextId();
    return this.#streams.open({ type: "stream", id }, new CommandQueue(id, this.#executor));
  }

  destroyStream(stream: Stream): void {
    const queue = this.#streams.get(stream);
    this.#rejectOnCapturedStream(queue, "destroyStream");
    queue.drain();
    queue.throwFailure();
    this.#streams.close(stream);
  }

  createEvent(): Event {
    this.#requireOpen();
    return this.#events.open({ type: "event", id: this.#events.nextId() }, { position: undefined });
  }

  destroyEvent(event: Event): void {
    this.#events.get(event);
    this.#events.close(event);
  }

  recordEvent(event: Event, stream: Stream): void {
    const state = this.#events.get(event);
    const queue = this.#streams.get(stream);
    state.position = this.#capture?.includes(queue)
      ? this.#capture.recordPosition(queue)
      : queue.currentPosition();
  }

  waitEvent(stream: Stream, event: Event): void {
    const queue = this.#streams.get(stream);
    const { position } = this.#events.get(event);
    if (position === undefined) return;
    if ("capture" in position) {
      if (position.capture !== this.#capture) throw capturedEvent(event);
      position.capture.join(queue, position);
    } else {
      const call = `waitEvent(stream #${stream.id}, event #${event.id}), whose event was recorded outside it,`;
      if (this.#capture?.includes(queue))
        this.#capture.reject(call, "synchronize with that work before beginCapture.");
      queue.pushWait(position);
    }
  }

  isReached(event: Event): boolean {
    const position = this.#positionOutsideCapture(event, "isReached");
    return position === undefined || position.stream.isReached(position.position);
  }

  synchronizeEvent(event: Event): void {
    const position = this.#positionOutsideCapture(event, "synchronizeEvent");
    position?.stream.drain(position.position);
    position?.stream.throwFailure(position.position);
  }

  synchronize(stream: Stream): void {
    const queue = this.#streams.get(stream);
    this.#rejectOnCapturedStream(queue, "synchronize");
    queue.drain();
    queue.throwFailure();
  }

  copyToDevice(stream: Stream, target: Span, source: HostSpan): void {
    const queue = this.#streams.get(stream);
    const host = this.#hosts.get(source.memory);
    requireSameSize("copyToDevice", target.size, source.size);
    const offset = requireHostSpan(source, host.bytes.length);
    const device = liveSpan(this.#memory, target, () => "copyToDevice's target");
    this.#issue(queue, { kind: "copyToDevice", target: device, host, offset });
  }

  copyToHost(stream: Stream, target: HostSpan, source: Span): void {
    const queue = this.#streams.get(stream);
    const host = this.#hosts.get(target.memory);
    requireSameSize("copyToHost", target.size, source.size);
    const offset = requireHostSpan(target, host.bytes.length);
    const device = liveSpan(this.#memory, source, () => "copyToHost's source");
    this.#issue(queue, { kind: "copyToHost", host, offset, source: device });
  }

  copyOnDevice(stream: Stream, target: Span, source: Span): void {
    const queue = this.#streams.get(stream);
    requireSameSize("copyOnDevice", target.size, source.size);
    const to = liveSpan(this.#memory, target, () => "copyOnDevice's target");
    const from = liveSpan(this.#memory, source, () => "copyOnDevice's source");
    this.#issue(queue, { kind: "copyOnDevice", target: to, source: from });
  }

  fill(stream: Stream, target: Span, byte: number): void {
    const queue = this.#streams.get(stream);
    requireByte(byte);
    this.#issue(queue, { kind: "fill", target: liveSpan(this.#memory, target, () => "fill's target"), byte });
  }

  loadKernel(source: KernelSource): Kernel {
    this.#requireOpen();
    this.#rejectInCapture("loadKernel");
    const { name } = source;
    const compiled = this.#functionOf(source);
    const id = this.#kernels.nextId();
    const state: KernelState = { id, name, ...compiled, isUnloaded: false };
    this.#pool.load(state);
    return this.#kernels.open({ type: "kernel", id, name, parameters: [...source.parameters] }, state);
  }

  #functionOf(source: KernelSource): Pick<KernelState, "module" | "run" | "addressBase"> {
    const { native, host } = source;
    if (native) return { module: undefined, run: native, addressBase: this.#memory.nativeAddress() };
    // The memory's buffer is replaced when it grows, so each launch takes the current one.
    const run = host && ((...args: number[]) => host(this.#memory.bytes.buffer, ...args));
    if (run) return { module: undefined, run, addressBase: 0 };
    return { ...compileKernel(source, this.#memory.wasm, this.#memory.isWide), addressBase: 0 };
  }

  unloadKernel(kernel: Kernel): void {
    const state = this.#kernels.get(kernel);
    this.#rejectInCapture("unloadKernel");
    this.#drainAll();
    this.#pool.unload(state);
    state.isUnloaded = true;
    this.#kernels.close(kernel);
    this.#invalidations++;
  }

  launch(stream: Stream, launch: Launch): void {
    const queue = this.#streams.get(stream);
    const kernel = this.#kernels.get(launch.kernel);
    this.#issue(queue, createLaunch(kernel, launch.kernel.parameters, launch, this.#memory));
  }

  beginCapture(stream: Stream, _mode: CaptureMode): void {
    const queue = this.#streams.get(stream);
    if (this.#capture) throw captureAlreadyOpen(stream, this.#capture.origin);
    this.#capture = new Capture(queue);
  }

  endCapture(stream: Stream): Graph {
    const queue = this.#streams.get(stream);
    const capture = this.#capture;
    if (capture?.origin !== queue) throw captureNotOpen(stream, capture?.origin);
    this.#capture = undefined;
    const commands = capture.end();
    const id = this.#graphs.nextId();
    return this.#graphs.open(
      { type: "graph", id, nodes: countNodes(commands) },
      new RecordedGraph(id, commands),
    );
  }

  instantiate(graph: Graph): void {
    this.#graphs.get(graph).instantiate(this.#memory, this.#invalidations);
  }

  launchGraph(stream: Stream, graph: Graph): void {
    const queue = this.#streams.get(stream);
    const recorded = this.#graphs.get(graph);
    recorded.requireLaunchable(this.#memory, this.#invalidations);
    if (this.#capture?.includes(queue)) this.#capture.record(queue, recorded.commands);
    else queue.pushGraph(recorded.commands);
  }

  destroyGraph(graph: Graph): void {
    this.#graphs.get(graph);
    this.#graphs.close(graph);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#capture = undefined;
    for (const table of [this.#streams, this.#events, this.#kernels, this.#graphs, this.#hosts])
      table.closeAll();
    this.#pool.close();
  }

  #issue(queue: CommandQueue, command: Command): void {
    if (this.#capture?.includes(queue)) this.#capture.record(queue, [command]);
    else queue.push(command);
  }

  /**
   * Runs all queued work before memory or a kernel goes away. A failure is reported by its stream's next synchronize.
   */
  #drainAll(): void {
    for (const queue of this.#streams.states()) queue.drain();
  }

  #positionOutsideCapture(event: Event, call: string): StreamPosition | undefined {
    const { position } = this.#events.get(event);
    if (position === undefined || !("capture" in position)) return position;
    if (position.capture !== this.#capture) throw capturedEvent(event);
    return position.capture.reject(`${call}(event #${event.id})`, "call it after endCapture.");
  }

  #rejectInCapture(call: string): void {
    this.#capture?.reject(call, "call it before beginCapture or after endCapture.");
  }

  #rejectOnCapturedStream(queue: CommandQueue, call: string): void {
    if (!this.#capture?.includes(queue)) return;
    this.#capture.reject(`${call}(stream #${queue.id})`, "call it before beginCapture or after endCapture.");
  }

  /** Calls that take a handle skip this check: closing empties the handle tables. */
  #requireOpen(): void {
    if (this.#isClosed) {
      throw new HoldfastError("CLOSED", "The CPU driver is closed. Open a new one with openCpuDriver().");
    }
  }
}

function noHostMemory(size: number, available: number, cause?: unknown): HoldfastError {
  const message = `Cannot allocate ${formatBytes(size)} of host memory: ${formatBytes(available)} is available. Ask for less, or free memory elsewhere on the machine.`;
  return new HoldfastError("OUT_OF_MEMORY", message, { numbers: { size, available }, cause });
}
