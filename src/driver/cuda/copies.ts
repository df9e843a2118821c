/** Pinned host memory, and the copies and fills on a stream. */

import type { Bytes, Span } from "../../units/index.js";
import { requireByte, requireHostSize, requireHostSpan, requireSameSize } from "../checks.js";
import type { HostMemory, HostSpan, Stream } from "../driver.js";
import { loadKoffi } from "../foreign-functions.js";
import { HandleTable } from "../handles.js";
import type { Reservations } from "../reservations.js";
import { requireLive } from "./spans.js";
import type { CudaContext, CudaStreams } from "./streams.js";

interface HostBuffer {
  readonly address: number;
  readonly bytes: Uint8Array;
}

export class CudaCopies {
  readonly #context: CudaContext;
  readonly #streams: CudaStreams;
  readonly #reservations: Reservations;
  readonly #hosts = new HandleTable<HostMemory, HostBuffer>("Host memory");

  constructor(context: CudaContext, streams: CudaStreams, reservations: Reservations) {
    this.#context = context;
    this.#streams = streams;
    this.#reservations = reservations;
  }

  allocateHost(size: Bytes): HostMemory {
    const { cuda, out, enter } = this.#context;
    enter();
    this.#streams.rejectInCapture("allocateHost");
    requireHostSize(size);
    cuda.driver.cuMemHostAlloc(out.address, size, 0);
    const address = out.u64();
    const bytes = new Uint8Array(loadKoffi().view(BigInt(address), size));
    return this.#hosts.open({ type: "host", id: this.#hosts.nextId(), size }, { address, bytes });
  }

  isAllocated(memory: HostMemory): boolean {
    return this.#hosts.has(memory);
  }

  hostBytes(range: HostSpan): Uint8Array {
    const { bytes } = this.#hosts.get(range.memory);
    const offset = requireHostSpan(range, bytes.length);
    return bytes.subarray(offset, offset + range.size);
  }

  /** Copies in progress must complete before their memory is freed. */
  freeHost(memory: HostMemory): void {
    const { address } = this.#hosts.get(memory);
    const { cuda, enter } = this.#context;
    enter();
    this.#streams.rejectInCapture("freeHost");
    this.#streams.synchronizeAll();
    cuda.driver.cuMemFreeHost(address);
    this.#hosts.close(memory);
  }

  copyToDevice(stream: Stream, target: Span, source: HostSpan): void {
    const cuStream = this.#streams.handleOf(stream);
    const host = this.#hosts.get(source.memory);
    requireSameSize("copyToDevice", target.size, source.size);
    const hostAddress = host.address + requireHostSpan(source, host.bytes.length);
    this.#access(stream, target, "copyToDevice's target");
    this.#streams.captureOf(stream)?.hosts.add(source.memory);
    if (target.size === 0) return;
    this.#context.cuda.driver.cuMemcpyHtoDAsync_v2(target.address, hostAddress, target.size, cuStream);
  }

  copyToHost(stream: Stream, target: HostSpan, source: Span): void {
    const cuStream = this.#streams.handleOf(stream);
    const host = this.#hosts.get(target.memory);
    requireSameSize("copyToHost", target.size, source.size);
    const hostAddress = host.address + requireHostSpan(target, host.bytes.length);
    this.#access(stream, source, "copyToHost's source");
    this.#streams.captureOf(stream)?.hosts.add(target.memory);
    if (source.size === 0) return;
    this.#context.cuda.driver.cuMemcpyDtoHAsync_v2(hostAddress, source.address, source.size, cuStream);
  }

  copyOnDevice(stream: Stream, target: Span, source: Span): void {
    const cuStream = this.#streams.handleOf(stream);
    requireSameSize("copyOnDevice", target.size, source.size);
    this.#access(stream, target, "copyOnDevice's target");
    this.#access(stream, source, "copyOnDevice's source");
    if (target.size === 0) return;
    this.#context.cuda.driver.cuMemcpyDtoDAsync_v2(target.address, source.address, target.size, cuStream);
  }

  fill(stream: Stream, target: Span, byte: number): void {
    const cuStream = this.#streams.handleOf(stream);
    requireByte(byte);
    this.#access(stream, target, "fill's target");
    if (target.size === 0) return;
    this.#context.cuda.driver.cuMemsetD8Async(target.address, byte, target.size, cuStream);
  }

  /** The actions that free the host memory. */
  closing(): (() => void)[] {
    const { driver } = this.#context.cuda;
    return [
      ...[...this.#hosts.states()].map(
        ({ address }) =>
          () =>
            driver.cuMemFreeHost(address),
      ),
      () => this.#hosts.closeAll(),
    ];
  }

  /** Rejects a span that is not committed; an open capture records it. */
  #access(stream: Stream, span: Span, what: string): void {
    this.#context.enter();
    requireLive(this.#reservations, span, what);
    this.#streams.captureOf(stream)?.spans.push(span);
  }
}
