/**
 * The streams and events of a GPU, and the capture of a stream. An illegal call in a capture is rejected by name before
 * CUDA is called.
 */

import { HoldfastError } from "../../errors/index.js";
import { captureAlreadyOpen, capturedEvent, captureNotOpen } from "../capture-rejections.js";
import type { Event, Stream, StreamOptions } from "../driver.js";
import { HandleTable } from "../handles.js";
import type { Cuda } from "./calls.js";
import { CudaCapture } from "./capture.js";
import { captureMode, cudaStatus, eventFlag, streamFlag, streamPriority } from "./constants.js";
import { countAllNodes } from "./graph.js";
import type { NativeBuffer } from "./native-buffer.js";

export interface CudaContext {
  readonly cuda: Cuda;
  /** For the results of calls. */
  readonly out: NativeBuffer;
  /** Makes the context current. Throws if the driver is closed. */
  enter(): void;
}

/** A capture that has ended, with CUDA's handles of its graph and its stream. */
export interface EndedCapture {
  readonly capture: CudaCapture;
  readonly graph: number;
  readonly stream: number;
}

export class CudaStreams {
  readonly #context: CudaContext;
  readonly #streams = new HandleTable<Stream, number>("Stream");
  readonly #events = new HandleTable<Event, number>("Event");
  /** Events last recorded in a capture: no running work completes them. */
  readonly #capturedEvents = new Set<Event>();
  #capture: CudaCapture | undefined;

  constructor(context: CudaContext) {
    this.#context = context;
  }

  /** CUDA's handle of a stream. */
  handleOf(stream: Stream): number {
    return this.#streams.get(stream);
  }

  create({ isHighPriority = false }: StreamOptions = {}): Stream {
    const { cuda, out, enter } = this.#context;
    enter();
    const priority = isHighPriority ? streamPriority.high : streamPriority.normal;
    cuda.driver.cuStreamCreateWithPriority(out.address, streamFlag.NON_BLOCKING, priority);
    return this.#streams.open({ type: "stream", id: this.#streams.nextId() }, out.u64());
  }

  destroy(stream: Stream): void {
    const { cuda, enter } = this.#context;
    const cuStream = this.#streams.get(stream);
    enter();
    this.rejectInCapture(`destroyStream(stream #${stream.id})`);
    cuda.driver.cuStreamSynchronize(cuStream);
    cuda.driver.cuStreamDestroy_v2(cuStream);
    this.#streams.close(stream);
  }

  synchronize(stream: Stream): void {
    const { cuda, enter } = this.#context;
    const cuStream = this.#streams.get(stream);
    enter();
    this.rejectInCapture(`synchronize(stream #${stream.id})`);
    cuda.driver.cuStreamSynchronize(cuStream);
  }

  /** Waits for all issued work before memory or a kernel goes away. */
  synchronizeAll(): void {
    for (const stream of this.#streams.states()) this.#context.cuda.driver.cuStreamSynchronize(stream);
  }

  createEvent(): Event {
    const { cuda, out, enter } = this.#context;
    enter();
    cuda.driver.cuEventCreate(out.address, eventFlag.DISABLE_TIMING);
    return this.#events.open({ type: "event", id: this.#events.nextId() }, out.u64());
  }

  destroyEvent(event: Event): void {
    const { cuda, enter } = this.#context;
    const cuEvent = this.#events.get(event);
    enter();
    cuda.driver.cuEventDestroy_v2(cuEvent);
    this.#events.close(event);
    this.#capturedEvents.delete(event);
  }

  recordEvent(event: Event, stream: Stream): void {
    const { cuda, enter } = this.#context;
    const [cuEvent, cuStream] = [this.#events.get(event), this.#streams.get(stream)];
    enter();
    const capture = this.captureOf(stream);
    cuda.driver.cuEventRecord(cuEvent, cuStream);
    if (capture) {
      capture.record(event);
      this.#capturedEvents.add(event);
    } else this.#capturedEvents.delete(event);
  }

  waitEvent(stream: Stream, event: Event): void {
    const { cuda, enter } = this.#context;
    const [cuStream, cuEvent] = [this.#streams.get(stream), this.#events.get(event)];
    enter();
    const capture = this.#capture;
    if (this.#capturedEvents.has(event)) {
      if (!capture?.holdsEvent(event)) throw capturedEvent(event);
      capture.requireValid();
      cuda.driver.cuStreamWaitEvent(cuStream, cuEvent, 0);
      capture.join(stream);
      return;
    }
    if (capture?.includes(stream)) {
      const call = `waitEvent(stream #${stream.id}, event #${event.id}), whose event was recorded outside it,`;
      capture.reject(call, "synchronize with that work before beginCapture.");
    }
    cuda.driver.cuStreamWaitEvent(cuStream, cuEvent, 0);
  }

  isReached(event: Event): boolean {
    const cuEvent = this.#eventOutsideCapture(event, "isReached");
    const { driver } = this.#context.cuda;
    const status = driver.status.cuEventQuery(cuEvent);
    if (status === cudaStatus.ERROR_NOT_READY) return false;
    // The throwing variant reports the failure with its explanation.
    if (status !== cudaStatus.SUCCESS) driver.cuEventQuery(cuEvent);
    return true;
  }

  synchronizeEvent(event: Event): void {
    const cuEvent = this.#eventOutsideCapture(event, "synchronizeEvent");
    this.#context.cuda.driver.cuEventSynchronize(cuEvent);
  }

  get isCapturing(): boolean {
    return this.#capture !== undefined;
  }

  beginCapture(stream: Stream): void {
    const { cuda, enter } = this.#context;
    const cuStream = this.#streams.get(stream);
    enter();
    if (this.#capture) throw captureAlreadyOpen(stream, this.#capture.origin);
    cuda.driver.cuStreamBeginCapture_v2(cuStream, captureMode.THREAD_LOCAL);
    this.#capture = new CudaCapture(stream);
  }

  /** Ends the capture. The caller owns the graph, which may be invalid. */
  endCapture(stream: Stream): EndedCapture {
    const { cuda, out, enter } = this.#context;
    const cuStream = this.#streams.get(stream);
    enter();
    const capture = this.#capture;
    if (capture?.origin !== stream) throw captureNotOpen(stream, capture?.origin);
    // Whatever CUDA returns, the capture has ended.
    this.#capture = undefined;
    out.setU64(0);
    try {
      cuda.driver.cuStreamEndCapture(cuStream, out.address);
    } catch (error) {
      this.#discardCapture(cuStream);
      capture.requireValid();
      throw isStatus(error, cudaStatus.ERROR_STREAM_CAPTURE_UNJOINED) ? unjoined(stream, error) : error;
    }
    return { capture, graph: out.u64(), stream: cuStream };
  }

  /** Ends the open capture, if there is one, and discards its graph. */
  abandonCapture(): void {
    if (this.#capture) this.#discardCapture(this.#streams.get(this.#capture.origin));
    this.#capture = undefined;
  }

  /** The open capture, if the stream belongs to it. */
  captureOf(stream: Stream): CudaCapture | undefined {
    if (!this.#capture?.includes(stream)) return undefined;
    this.#capture.requireValid();
    return this.#capture;
  }

  /** The number of nodes that the stream's capture has recorded so far. */
  countRecordedNodes(stream: Stream): number {
    const { cuda, out } = this.#context;
    return countAllNodes(cuda, this.recordedGraph(stream), out);
  }

  /** CUDA's handle of the graph that the stream's capture is recording. */
  recordedGraph(stream: Stream): number {
    const { cuda, out } = this.#context;
    const { address } = out;
    const graph = 16;
    cuda.driver.cuStreamGetCaptureInfo_v2(
      this.#streams.get(stream),
      address,
      address + 8,
      address + graph,
      address + 24,
      address + 32,
    );
    return out.u64(graph);
  }

  /** Rejects also calls on streams outside the capture: CUDA forbids a capturing thread to wait or query. */
  rejectInCapture(call: string): void {
    this.#capture?.reject(call, "call it before beginCapture or after endCapture.");
  }

  rejectOnCapturedStream(stream: Stream, call: string): void {
    if (!this.#capture?.includes(stream)) return;
    this.#capture.reject(`${call}(stream #${stream.id})`, "call it before beginCapture or after endCapture.");
  }

  /** The actions that destroy the events and the streams. */
  closing(): (() => void)[] {
    const { driver } = this.#context.cuda;
    return [
      ...[...this.#events.states()].map((event) => () => driver.cuEventDestroy_v2(event)),
      ...[...this.#streams.states()].map((stream) => () => driver.cuStreamDestroy_v2(stream)),
      () => this.#events.closeAll(),
      () => this.#streams.closeAll(),
    ];
  }

  #eventOutsideCapture(event: Event, call: string): number {
    const cuEvent = this.#events.get(event);
    this.#context.enter();
    this.rejectInCapture(`${call}(event #${event.id})`);
    if (this.#capturedEvents.has(event)) throw capturedEvent(event);
    return cuEvent;
  }

  /** A capture that stays open would make every later call illegal. */
  #discardCapture(stream: number): void {
    const { cuda, out } = this.#context;
    const { status } = cuda.driver;
    out.setU64(0);
    status.cuStreamEndCapture(stream, out.address);
    const graph = out.u64();
    if (graph !== 0) status.cuGraphDestroy(graph);
  }
}

function isStatus(error: unknown, status: number): boolean {
  return error instanceof HoldfastError && error.numbers["status"] === status;
}

function unjoined(stream: Stream, cause: unknown): HoldfastError {
  const message = `The capture on stream #${stream.id} ended while work of another stream was not joined to it. Before endCapture, record an event on that stream and let stream #${stream.id} wait for it.`;
  return new HoldfastError("CAPTURE_ORDER", message, { numbers: { stream: stream.id }, cause });
}
