/**
 * `strict` wraps any driver and enforces CUDA's rules before the driver is called:
 * - inside a capture, no allocation, synchronization, read-back or host copy;
 * - host copies only with this driver's pinned memory;
 * - no unordered access to the same bytes by two streams, or by a stream and the host;
 * - only live addresses and open handles.
 *
 * The test suites run under it; it is too slow for training.
 */

import { HoldfastError } from "../../errors/index.js";
import { contains, formatBytes, type Span, span } from "../../units/index.js";
import type {
  Argument,
  CaptureMode,
  Driver,
  DriverCall,
  Event,
  Graph,
  HostSpan,
  Kernel,
  Launch,
  Stream,
} from "../driver.js";
import { isMemory } from "../driver.js";
import { type Access, HappensBefore, hostTimeline } from "./happens-before.js";
import { LiveMap } from "./live-map.js";

interface Capture {
  readonly origin: Stream;
  /** Streams whose work is recorded: the origin, and those that waited for an event recorded inside. */
  readonly streams: Set<number>;
  readonly eventsInside: Set<number>;
  readonly order: HappensBefore;
  readonly accesses: Access[];
}

type Handle = Stream | Event | Kernel | Graph | HostSpan["memory"];

const deviceSpace = 0;
const streamTimeline = (stream: Stream): number => stream.id + 1;
const hostRange = (range: HostSpan): Span => span(range.offset, range.size);

/**
 * Wraps a driver so that a call that breaks CUDA's rules is rejected by name before the driver is called.
 *
 * @example
 * ```ts
 * import { bytes, openCpuDriver, strict } from "holdfast/internals";
 * const driver = strict(openCpuDriver());
 * const range = driver.reserve(bytes(65536));
 * driver.commit(range);
 * try {
 *   driver.fill(driver.createStream(), range, 0); // these bytes were never marked live
 * } catch (error) {
 *   console.log((error as Error).name); // → HoldfastError [DEAD_ADDRESS]
 * }
 * driver.close();
 * ```
 */
export function strict(inner: Driver): Required<Driver> {
  const live = new LiveMap();
  const order = new HappensBefore();
  const open = new Set<Handle>();
  const graphAccesses = new Map<Graph, readonly Access[]>();
  let capture: Capture | undefined;

  function rejectInCapture(call: DriverCall, detail = ""): void {
    if (!capture) return;
    throw new HoldfastError(
      "CAPTURE_REJECTED",
      `${call}${detail} was called while stream ${capture.origin.id} is being captured. ` +
        "Inside a capture only kernels, fills and device copies are legal; call it before beginCapture.",
    );
  }

  function requireOpen(...handles: Handle[]): void {
    for (const handle of handles) {
      if (!open.has(handle)) {
        throw new HoldfastError(
          handle.type === "host" ? "FOREIGN_MEMORY" : "CLOSED",
          handle.type === "host"
            ? `Host memory ${handle.id} is not open pinned memory of this driver; it could move or be garbage-collected. Use memory from allocateHost().`
            : `${handle.type} ${handle.id} is not open: it was destroyed or belongs to another driver. Create a new one with this driver.`,
        );
      }
    }
  }

  function requireHost(range: HostSpan): void {
    requireOpen(range.memory);
    if (!contains(span(0, range.memory.size), hostRange(range))) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `Bytes ${range.offset} to ${range.offset + range.size} are outside host memory ${range.memory.id}, which has ` +
          `${formatBytes(range.memory.size)}. Pass a range inside it.`,
      );
    }
  }

  function isCaptured(stream: Stream): boolean {
    return capture?.streams.has(stream.id) ?? false;
  }

  /** Checks and records the accesses of a call, then makes the call. */
  function work(stream: Stream, accesses: readonly Access[], call: () => void): void {
    requireOpen(stream);
    for (const access of accesses) {
      if (access.space === deviceSpace) live.requireLive(access.range, access.what);
    }
    if (capture && isCaptured(stream)) {
      capture.order.access(streamTimeline(stream), accesses, call);
      capture.accesses.push(...accesses);
    } else {
      order.access(streamTimeline(stream), accesses, call);
    }
  }

  const makeAccess = (space: number, range: Span, isWrite: boolean, what: string): Access => ({
    space,
    range: { ...range },
    isWrite,
    what,
  });

  function listAccesses({ kernel, arguments: values }: Launch): Access[] {
    return kernel.parameters.flatMap((parameter, index) => {
      const value: Argument | undefined = values[index];
      if (!isMemory(parameter)) return [];
      if (typeof value !== "object") {
        throw new HoldfastError(
          "BAD_ARGUMENT",
          `Argument ${index} of kernel ${kernel.name} is ${value}. Pass a span of device memory.`,
        );
      }
      return [
        makeAccess(deviceSpace, value, parameter !== "in", `launch of ${kernel.name} (argument ${index})`),
      ];
    });
  }

  function addHandle<T extends Handle>(handle: T): T {
    open.add(handle);
    return handle;
  }

  function closeHandle(handle: Handle, destroy: () => void): void {
    requireOpen(handle);
    destroy();
    open.delete(handle);
  }

  return {
    describe: () => inner.describe(),
    memory: () => inner.memory(),

    reserve(size) {
      rejectInCapture("reserve", ` of ${formatBytes(size)}`);
      const range = inner.reserve(size);
      live.reserve(range);
      return range;
    },
    commit(range) {
      rejectInCapture("commit", ` of ${formatBytes(range.size)}`);
      inner.commit(range);
      live.commit(range);
    },
    release(reservation) {
      rejectInCapture("release", ` of ${formatBytes(reservation.size)}`);
      inner.release(reservation);
      live.release(reservation);
    },
    annotate(range, state) {
      live.annotate(range, state);
      inner.annotate?.(range, state);
    },
    recall: (key) => inner.recall?.(key),
    remember: (key, note) => inner.remember?.(key, note),

    allocateHost(size) {
      rejectInCapture("allocateHost", ` of ${formatBytes(size)}`);
      return addHandle(inner.allocateHost(size));
    },
    hostBytes(range) {
      rejectInCapture("hostBytes");
      requireHost(range);
      const access = makeAccess(range.memory.id + 1, hostRange(range), true, "the host");
      return order.access(hostTimeline, [access], () => inner.hostBytes(range));
    },
    freeHost(memory) {
      rejectInCapture("freeHost");
      const access = makeAccess(memory.id + 1, span(0, memory.size), true, "freeHost");
      closeHandle(memory, () => order.access(hostTimeline, [access], () => inner.freeHost(memory)));
    },

    createStream: (options) => addHandle(inner.createStream(options)),
    destroyStream: (stream) => closeHandle(stream, () => inner.destroyStream(stream)),
    createEvent: () => addHandle(inner.createEvent()),
    destroyEvent: (event) => closeHandle(event, () => inner.destroyEvent(event)),

    recordEvent(event, stream) {
      requireOpen(event, stream);
      inner.recordEvent(event, stream);
      if (capture && isCaptured(stream)) {
        capture.eventsInside.add(event.id);
        capture.order.record(event.id, streamTimeline(stream));
      } else {
        order.record(event.id, streamTimeline(stream));
      }
    },
    waitEvent(stream, event) {
      requireOpen(stream, event);
      inner.waitEvent(stream, event);
      if (capture?.eventsInside.has(event.id)) {
        capture.streams.add(stream.id);
        capture.order.wait(streamTimeline(stream), event.id);
      } else {
        order.wait(streamTimeline(stream), event.id);
      }
    },
    isReached(event) {
      rejectInCapture("isReached");
      requireOpen(event);
      const reached = inner.isReached(event);
      if (reached) order.hostReached(event.id);
      return reached;
    },
    synchronizeEvent(event) {
      rejectInCapture("synchronizeEvent");
      requireOpen(event);
      inner.synchronizeEvent(event);
      order.hostReached(event.id);
    },
    synchronize(stream) {
      rejectInCapture("synchronize");
      requireOpen(stream);
      inner.synchronize(stream);
      order.hostSynchronized(streamTimeline(stream));
    },

    copyToDevice(stream, target, source) {
      rejectInCapture("copyToDevice", ` of ${formatBytes(source.size)}`);
      requireHost(source);
      const read = makeAccess(source.memory.id + 1, hostRange(source), false, "copyToDevice");
      work(stream, [read, makeAccess(deviceSpace, target, true, "copyToDevice")], () =>
        inner.copyToDevice(stream, target, source),
      );
    },
    copyToHost(stream, target, source) {
      rejectInCapture("copyToHost", ` of ${formatBytes(source.size)}`);
      requireHost(target);
      const write = makeAccess(target.memory.id + 1, hostRange(target), true, "copyToHost");
      work(stream, [write, makeAccess(deviceSpace, source, false, "copyToHost")], () =>
        inner.copyToHost(stream, target, source),
      );
    },
    copyOnDevice(stream, target, source) {
      const read = makeAccess(deviceSpace, source, false, "copyOnDevice");
      work(stream, [read, makeAccess(deviceSpace, target, true, "copyOnDevice")], () =>
        inner.copyOnDevice(stream, target, source),
      );
    },
    fill(stream, target, byte) {
      work(stream, [makeAccess(deviceSpace, target, true, "fill")], () => inner.fill(stream, target, byte));
    },
    compileKernels(sources) {
      rejectInCapture("compileKernels");
      inner.compileKernels?.(sources);
    },
    loadKernel(source) {
      rejectInCapture("loadKernel", ` of ${source.name}`);
      return addHandle(inner.loadKernel(source));
    },
    unloadKernel(kernel) {
      rejectInCapture("unloadKernel", ` of ${kernel.name}`);
      closeHandle(kernel, () => inner.unloadKernel(kernel));
    },
    launch(stream, launch) {
      requireOpen(launch.kernel);
      work(stream, listAccesses(launch), () => inner.launch(stream, launch));
    },

    beginCapture(stream, mode) {
      requireOpen(stream);
      requireThreadLocal(mode);
      if (capture) {
        throw new HoldfastError(
          "CAPTURE_ORDER",
          `Cannot capture stream ${stream.id} while stream ${capture.origin.id} is being captured; end that capture first.`,
        );
      }
      inner.beginCapture(stream, mode);
      capture = {
        origin: stream,
        streams: new Set([stream.id]),
        eventsInside: new Set(),
        order: new HappensBefore(),
        accesses: [],
      };
    },
    endCapture(stream) {
      requireOpen(stream);
      const ending = capture;
      if (!ending || ending.origin !== stream) {
        throw new HoldfastError(
          "CAPTURE_ORDER",
          `Cannot end the capture of stream ${stream.id}: it is not being captured. Call beginCapture on it first.`,
        );
      }
      // Whatever the driver returns, the capture has ended: a second end must find none.
      capture = undefined;
      const graph = addHandle(inner.endCapture(stream));
      graphAccesses.set(graph, ending.accesses);
      return graph;
    },
    instantiate(graph) {
      rejectInCapture("instantiate");
      requireOpen(graph);
      inner.instantiate(graph);
    },
    launchGraph(stream, graph) {
      rejectInCapture("launchGraph");
      requireOpen(graph);
      const accesses = (graphAccesses.get(graph) ?? []).map((access) => ({
        ...access,
        what: `graph ${graph.id}: ${access.what}`,
      }));
      work(stream, accesses, () => inner.launchGraph(stream, graph));
    },
    destroyGraph(graph) {
      closeHandle(graph, () => inner.destroyGraph(graph));
      graphAccesses.delete(graph);
    },

    close() {
      inner.close();
      open.clear();
    },
  };
}

function requireThreadLocal(mode: CaptureMode): void {
  if (mode !== "thread-local") {
    throw new HoldfastError(
      "CAPTURE_REJECTED",
      `Capture mode "${String(mode)}" is not allowed. Use "thread-local": the relaxed mode disables the ` +
        "driver's checks, and the global mode fails on calls of other threads.",
    );
  }
}
