/**
 * Upload and read-back. The number of driver calls depends on bytes, not on tensors: one copy per staging slot uploads
 * adjacent device memory.
 */

import { crc32 } from "node:zlib";
import type { Driver, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Address, alignUp, type Bytes, formatBytes, type Span } from "../../units/index.js";
import type { CaptureStateMachine } from "../capture/capture-state.js";
import { countWrite } from "../memory/persistent.js";
import { alignment, type Storage } from "../memory/storage.js";
import type { Recorder } from "../observe/recorder.js";
import { type StagingRing, type StagingSlot, slotSpan } from "./staging.js";

/** Bytes to upload, and the storage that gets them. */
export interface UploadItem {
  readonly source: ArrayBufferView;
  /** Must have exactly as many bytes as the source. */
  readonly target: Storage;
}

/** Bytes and copies between host and device. */
export interface TransferCount {
  /** Driver copies. */
  copies: number;
  /** Bytes of tensors, without the padding between them. */
  bytes: number;
  tensors: number;
}

export interface TransferOptions {
  readonly driver: Driver;
  readonly stream: Stream;
  /** The stream of an upload that is about to be issued. Default: `stream`. */
  readonly streamForUpload?: () => Stream;
  readonly staging: StagingRing;
  readonly recorder: Recorder;
  readonly captureState: CaptureStateMachine;
  readonly requireLive: (storage: Storage, use: string) => void;
  /** Read every upload back and compare checksums. */
  readonly verify: boolean;
}

export class Transfer {
  /** Totals since the start, for reports and for tests that count copies. */
  readonly up: TransferCount = { copies: 0, bytes: 0, tensors: 0 };
  readonly down: TransferCount = { copies: 0, bytes: 0, tensors: 0 };
  readonly #options: TransferOptions;

  constructor(options: TransferOptions) {
    this.#options = options;
  }

  /** Copies host arrays to the device. Checks every item before the first byte moves. */
  upload(items: Iterable<UploadItem>): TransferCount {
    const list = [...items];
    this.#options.captureState.rejectInside(
      `upload of ${list.length} ${list.length === 1 ? "tensor" : "tensors"}`,
      list[0]?.target.label ?? "nothing",
    );
    for (const item of list) this.#requireUploadable(item);
    const before = { ...this.up };
    const onSent = this.#options.verify ? this.#verifyCopy : undefined;
    const stream = this.#options.streamForUpload?.() ?? this.#options.stream;
    const batch = new UploadBatch({ ...this.#options, stream }, this.up, onSent);
    for (const { source, target } of list) {
      countWrite(target);
      batch.add(asBytes(source), target);
      this.up.tensors += 1;
      this.up.bytes += source.byteLength;
    }
    batch.send();
    return {
      copies: this.up.copies - before.copies,
      bytes: this.up.bytes - before.bytes,
      tensors: this.up.tensors - before.tensors,
    };
  }

  /** Copies a storage's bytes to the host, after all work issued so far. */
  read(storage: Storage): Uint8Array<ArrayBuffer> {
    const { captureState, requireLive } = this.#options;
    captureState.rejectInside("read-back", storage.label, storage.span.size);
    requireLive(storage, "read-back");
    return this.#read(storage.span, storage.label);
  }

  /**
   * Passes a storage's bytes to a function, one staging slot at a time, so that the host need not hold all of them.
   */
  readChunks(storage: Storage, visit: (chunk: Uint8Array, offset: number) => void): void {
    const { captureState, requireLive } = this.#options;
    captureState.rejectInside("read-back", storage.label, storage.span.size);
    requireLive(storage, "read-back");
    this.#readChunks(storage.span, storage.label, visit);
  }

  #read(span: Span, label: string): Uint8Array<ArrayBuffer> {
    const result = new Uint8Array(span.size);
    this.#readChunks(span, label, (chunk, offset) => result.set(chunk, offset));
    return result;
  }

  #readChunks(
    { address, size }: Span,
    label: string,
    visit: (chunk: Uint8Array, offset: number) => void,
  ): void {
    const { driver, stream, staging, recorder } = this.#options;
    for (let offset = 0; offset < size; offset += staging.slotSize) {
      const chunkBytes = Math.min(staging.slotSize, size - offset) as Bytes;
      const slot = staging.take();
      driver.copyToHost(stream, slotSpan(slot, chunkBytes), {
        address: (address + offset) as Address,
        size: chunkBytes,
      });
      staging.issued(slot, stream);
      driver.synchronizeEvent(slot.event);
      visit(staging.view(slot, chunkBytes), offset);
      this.down.copies += 1;
      recorder.record("copy-down", label, address + offset, chunkBytes);
    }
    this.down.bytes += size;
    this.down.tensors += 1;
  }

  #requireUploadable({ source, target }: UploadItem): void {
    if (!ArrayBuffer.isView(source)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The source of the upload to "${target.label}" is not a typed array. Pass a Float32Array or another typed array.`,
      );
    }
    this.#options.requireLive(target, "upload");
    if (source.byteLength !== target.span.size) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The upload to "${target.label}" has ${source.byteLength} bytes, but the storage has ${target.span.size}. Pass an array of the same size.`,
        { numbers: { source: source.byteLength, target: target.span.size } },
      );
    }
  }

  /** Reads back each copy as a whole, so that the cost of verifying depends on bytes, not on tensors. */
  readonly #verifyCopy: OnSent = (target, label, sent) => {
    const received = crc32(this.#read(target, label));
    if (sent === received) return;
    throw new HoldfastError(
      "UPLOAD_CORRUPT",
      `The copy of ${formatBytes(target.size)} that starts with "${label}" was uploaded with checksum ${hex(sent)} but ` +
        `read back with ${hex(received)}. The source changed during the upload, or the machine is faulty.`,
      { numbers: { sent, found: received, size: target.size } },
    );
  };
}

/** Called for each copy: its target, its first tensor, and the checksum of the sent bytes. */
type OnSent = (target: Span, label: string, checksum: number) => void;

interface OpenSlot {
  readonly slot: StagingSlot;
  readonly buffer: Uint8Array;
  /** The device address of the slot's first byte, and the first tensor's label. */
  readonly start: number;
  readonly home: object;
  readonly label: string;
  length: number;
  /** The end of the last tensor, including its padding. */
  paddedEnd: number;
}

/** Collects adjacent device memory in a staging slot and sends it as one copy. */
class UploadBatch {
  readonly #options: TransferOptions;
  readonly #count: TransferCount;
  readonly #onSent: OnSent | undefined;
  #open: OpenSlot | undefined;

  constructor(options: TransferOptions, count: TransferCount, onSent: OnSent | undefined) {
    this.#options = options;
    this.#count = count;
    this.#onSent = onSent;
  }

  add(source: Uint8Array, target: Storage): void {
    const { slotSize } = this.#options.staging;
    const { address } = target.span;
    if (this.#open && !isAdjacent(this.#open, target)) this.send();
    let sent = 0;
    while (sent < source.length) {
      const open = this.#openAt(address + sent, target);
      const offset = Math.min(slotSize, address + sent - open.start);
      const chunk = source.subarray(sent, sent + slotSize - offset);
      open.buffer.fill(0, open.length, offset);
      open.buffer.set(chunk, offset);
      open.length = offset + chunk.length;
      sent += chunk.length;
      const end = address + source.length;
      // A view is followed by other bytes of its owner, an owner by its padding.
      open.paddedEnd = target.owner ? end : alignUp(end, alignment);
      if (open.length === slotSize) this.send();
    }
  }

  send(): void {
    if (!this.#open) return;
    const { slot, buffer, start, length, label } = this.#open;
    const { driver, stream, staging, recorder } = this.#options;
    const target: Span = { address: start as Address, size: length as Bytes };
    this.#open = undefined;
    const checksum = this.#onSent && crc32(buffer.subarray(0, length));
    driver.copyToDevice(stream, target, slotSpan(slot, length));
    staging.issued(slot, stream);
    this.#count.copies += 1;
    recorder.record("copy-up", label, target.address, length);
    if (checksum !== undefined) this.#onSent?.(target, label, checksum);
  }

  #openAt(start: number, { label, home }: Storage): OpenSlot {
    if (!this.#open) {
      const { staging } = this.#options;
      const slot = staging.take();
      const buffer = staging.view(slot, staging.slotSize);
      this.#open = { slot, buffer, start, home, label, length: 0, paddedEnd: start };
    }
    return this.#open;
  }
}

/** True if a storage starts where the slot's last one ended, with or without padding. */
function isAdjacent({ start, length, home, paddedEnd }: OpenSlot, target: Storage): boolean {
  const { address } = target.span;
  return target.home === home && (address === start + length || address === paddedEnd);
}

function asBytes(source: ArrayBufferView): Uint8Array {
  return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
}

function hex(value: number): string {
  return value.toString(16).padStart(8, "0");
}
