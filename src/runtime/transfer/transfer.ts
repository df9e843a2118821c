/**
 * Upload and read-back. Driver calls grow with bytes, not with tensors: whatever lies side by side on the device goes up
 * in one copy, a staging slot at a time, however many tensors it is.
 */

import { crc32 } from "node:zlib";
import type { Driver, Stream } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Address, alignUp, type Bytes, formatBytes, type Span } from "../../units/index.js";
import type { CaptureStateMachine } from "../capture/capture-state.js";
import { alignment } from "../memory/arena.js";
import type { Storage } from "../memory/storage.js";
import type { Recorder } from "../observe/recorder.js";
import { type StagingRing, type StagingSlot, spanOf } from "./staging.js";

export interface UploadItem {
  readonly source: ArrayBufferView;
  /** Exactly as many bytes as the source. */
  readonly target: Storage;
}

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
  readonly staging: StagingRing;
  readonly recorder: Recorder;
  readonly gate: CaptureStateMachine;
  readonly requireLive: (storage: Storage, use: string) => void;
  /** Read every upload back and compare checksums. */
  readonly verify: boolean;
}

export class Transfer {
  /** Since the start, for reports and for tests that count copies. */
  readonly up: TransferCount = { copies: 0, bytes: 0, tensors: 0 };
  readonly down: TransferCount = { copies: 0, bytes: 0, tensors: 0 };
  readonly #options: TransferOptions;

  constructor(options: TransferOptions) {
    this.#options = options;
  }

  /** Copies host arrays to the device. Every item is checked before the first byte moves. */
  upload(items: Iterable<UploadItem>): TransferCount {
    const list = [...items];
    this.#options.gate.rejectInside(`upload of ${list.length} tensors`, list[0]?.target.label ?? "nothing");
    for (const item of list) this.#require(item);
    const before = { ...this.up };
    const onSent = this.#options.verify ? this.#requireArrived : undefined;
    const gathering = new Gathering(this.#options, this.up, onSent);
    for (const { source, target } of list) {
      gathering.add(bytesOf(source), target);
      this.up.tensors += 1;
      this.up.bytes += source.byteLength;
    }
    gathering.send();
    return {
      copies: this.up.copies - before.copies,
      bytes: this.up.bytes - before.bytes,
      tensors: this.up.tensors - before.tensors,
    };
  }

  /** Copies a storage's bytes to the host, behind all work issued so far. */
  read(storage: Storage): Uint8Array<ArrayBuffer> {
    const { gate, requireLive } = this.#options;
    gate.rejectInside("read-back", storage.label, storage.span.size);
    requireLive(storage, "read-back");
    return this.#read(storage.span, storage.label);
  }

  /** Shows a storage's bytes to a function, a staging slot at a time: for what need not lie on the host as a whole. */
  readParts(storage: Storage, look: (part: Uint8Array, offset: number) => void): void {
    const { gate, requireLive } = this.#options;
    gate.rejectInside("read-back", storage.label, storage.span.size);
    requireLive(storage, "read-back");
    this.#readParts(storage.span, storage.label, look);
  }

  #read(span: Span, label: string): Uint8Array<ArrayBuffer> {
    const result = new Uint8Array(span.size);
    this.#readParts(span, label, (part, offset) => result.set(part, offset));
    return result;
  }

  #readParts({ address, size }: Span, label: string, look: (part: Uint8Array, offset: number) => void): void {
    const { driver, stream, staging, recorder } = this.#options;
    for (let offset = 0; offset < size; offset += staging.slotSize) {
      const part = Math.min(staging.slotSize, size - offset) as Bytes;
      const slot = staging.take();
      driver.copyToHost(stream, spanOf(slot, part), { address: (address + offset) as Address, size: part });
      staging.issued(slot, stream);
      driver.synchronizeEvent(slot.event);
      look(staging.bytesOf(slot, part), offset);
      this.down.copies += 1;
      recorder.record("copy-down", label, address + offset, part);
    }
    this.down.bytes += size;
    this.down.tensors += 1;
  }

  #require({ source, target }: UploadItem): void {
    if (!ArrayBuffer.isView(source)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The upload to "${target.label}" has no typed array as its source.`,
      );
    }
    this.#options.requireLive(target, "upload");
    if (source.byteLength !== target.span.size) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The upload to "${target.label}" has ${source.byteLength} bytes for a storage of ${target.span.size}.`,
        { numbers: { source: source.byteLength, target: target.span.size } },
      );
    }
  }

  /** Reads a copy back as it went up, so that checking too grows with bytes and not with tensors. */
  readonly #requireArrived: OnSent = (target, label, sent) => {
    const found = crc32(this.#read(target, label));
    if (sent === found) return;
    throw new HoldfastError(
      "UPLOAD_CORRUPT",
      `The copy of ${formatBytes(target.size)} that begins with "${label}" went up with checksum ${hex(sent)} and was ` +
        `read back with ${hex(found)}.`,
      { numbers: { sent, found, size: target.size } },
    );
  };
}

/** Hears of each copy: where it went, the first tensor in it, and the checksum of what was sent. */
type OnSent = (target: Span, label: string, checksum: number) => void;

interface OpenSlot {
  readonly slot: StagingSlot;
  readonly room: Uint8Array;
  /** Where on the device the slot's first byte goes, and who asked first. */
  readonly start: number;
  readonly home: object;
  readonly label: string;
  length: number;
  /** The end of the last tensor with the padding that is its own. */
  paddedEnd: number;
}

/** Collects in a staging slot what lies side by side on the device, and sends it as one copy. */
class Gathering {
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
    if (this.#open && !continues(this.#open, target)) this.send();
    let sent = 0;
    while (sent < source.length) {
      const open = this.#openAt(address + sent, target);
      const at = Math.min(slotSize, address + sent - open.start);
      const part = source.subarray(sent, sent + slotSize - at);
      open.room.fill(0, open.length, at);
      open.room.set(part, at);
      open.length = at + part.length;
      sent += part.length;
      const end = address + source.length;
      // A view's neighbours are its owner's bytes; behind an owner lies nothing but its own padding.
      open.paddedEnd = target.owner ? end : alignUp(end, alignment);
      if (open.length === slotSize) this.send();
    }
  }

  send(): void {
    if (!this.#open) return;
    const { slot, room, start, length, label } = this.#open;
    const { driver, stream, staging, recorder } = this.#options;
    const target: Span = { address: start as Address, size: length as Bytes };
    this.#open = undefined;
    const checksum = this.#onSent && crc32(room.subarray(0, length));
    driver.copyToDevice(stream, target, spanOf(slot, length));
    staging.issued(slot, stream);
    this.#count.copies += 1;
    recorder.record("copy-up", label, target.address, length);
    if (checksum !== undefined) this.#onSent?.(target, label, checksum);
  }

  #openAt(start: number, { label, home }: Storage): OpenSlot {
    if (!this.#open) {
      const { staging } = this.#options;
      const slot = staging.take();
      const room = staging.bytesOf(slot, staging.slotSize);
      this.#open = { slot, room, start, home, label, length: 0, paddedEnd: start };
    }
    return this.#open;
  }
}

/** Does a storage begin where the slot's last one ended, with or without that one's padding? */
function continues({ start, length, home, paddedEnd }: OpenSlot, target: Storage): boolean {
  const { address } = target.span;
  return target.home === home && (address === start + length || address === paddedEnd);
}

function bytesOf(source: ArrayBufferView): Uint8Array {
  return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
}

function hex(value: number): string {
  return value.toString(16).padStart(8, "0");
}
