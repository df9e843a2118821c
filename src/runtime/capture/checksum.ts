/** Copies and checksums of storages, to restore them and to compare two runs bit for bit. */

import { createHash } from "node:crypto";
import { HoldfastError } from "../../errors/index.js";
import type { Storage } from "../memory/storage.js";
import type { Transfer } from "../transfer/transfer.js";
import { copyOnDevice, type DeviceCopiesOptions, type DeviceCopy, readDigests } from "./device-copies.js";

type HostCopy = ReadonlyMap<Storage, Uint8Array>;

function copyToHost(transfer: Transfer, storages: readonly Storage[]): HostCopy {
  return new Map(storages.map((storage) => [storage, transfer.read(storage)]));
}

/** Copies storages, to restore them later: on the device, or to the host if the device has no room. */
export function takeSnapshot(options: DeviceCopiesOptions, storages: readonly Storage[]): DeviceCopy {
  const { transfer } = options;
  const onDevice = copyOnDevice(options, storages);
  if (onDevice) return onDevice;
  const copy = copyToHost(transfer, storages);
  const items = [...copy].map(([target, source]) => ({ target, source }));
  return { restore: () => void transfer.upload(items), release: () => undefined };
}

/** Rejects a replay that differs from the direct run; names the first buffer and byte. */
function requireEqual(
  name: string,
  direct: HostCopy,
  replayed: HostCopy,
  scratch: ScratchMemory | undefined,
): void {
  for (const [storage, expected] of direct) {
    const actual = replayed.get(storage);
    if (actual && Buffer.compare(expected, actual) === 0) continue;
    const isScratch = storage === scratch?.storage;
    const byte = expected.findIndex(
      (value, index) => value !== actual?.[index] && (!isScratch || scratch.isComparable(index, 1)),
    );
    if (byte < 0) continue;
    throw new HoldfastError(
      "CAPTURE_MISMATCH",
      `The replay of "${name}" differs from the same work run directly: first in "${storage.label}" at byte ${byte} of ` +
        `${expected.length} (${expected[byte]} directly, ${actual?.[byte]} replayed). The graph was not kept; the captured ` +
        "function must do the same work on the same memory every time.",
      { numbers: { capture: name, storage: storage.label, byte } },
    );
  }
}

/** Drops storages whose bytes are all covered by another one, so that bytes are read only once. */
export function withoutCovered(storages: Iterable<Storage>): Storage[] {
  const sorted = [...storages].sort((a, b) => a.span.address - b.span.address || b.span.size - a.span.size);
  const remaining: Storage[] = [];
  let end = 0;
  for (const storage of sorted) {
    const { address, size } = storage.span;
    if (remaining.length > 0 && address + size <= end) continue;
    remaining.push(storage);
    end = Math.max(end, address + size);
  }
  return remaining;
}

/** Memory that a captured function uses and that is not read before or after it. */
export interface ScratchMemory {
  readonly storage: Storage;
  /** Names the value at an offset when the function ends, for messages. */
  nameAt(offset: number): string;
  /** False if a library's workspace is left in this range when the function ends: its contents may differ from run to run. */
  isComparable(offset: number, size: number): boolean;
}

/** The results of a run: small storages as bytes, large ones as checksums of chunks. */
export interface Checksums {
  readonly bytes: HostCopy;
  readonly chunkChecksums: ReadonlyMap<Storage, ChunkChecksums>;
}

/** One for each chunk, in the order of memory. */
type ChunkChecksums = BigUint64Array | readonly string[];

const chunkBytes = 64 * 1024;

export function takeChecksums(options: DeviceCopiesOptions, storages: readonly Storage[]): Checksums {
  const isLarge = ({ span }: Storage): boolean => span.size > chunkBytes;
  const [large, small] = [storages.filter(isLarge), storages.filter((storage) => !isLarge(storage))];
  const digests = readDigests(options, large, chunkBytes);
  const checksumsOf = (storage: Storage, index: number): ChunkChecksums =>
    digests?.[index] ?? hashChunks(options.transfer, storage);
  return {
    bytes: copyToHost(options.transfer, small),
    chunkChecksums: new Map(large.map((storage, index) => [storage, checksumsOf(storage, index)])),
  };
}

/** Reads a storage back and hashes its chunks on the host. */
function hashChunks(transfer: Transfer, storage: Storage): readonly string[] {
  const checksums: string[] = [];
  transfer.readChunks(storage, (bytes) => {
    for (let offset = 0; offset < bytes.length; offset += chunkBytes) {
      const chunk = bytes.subarray(offset, offset + chunkBytes);
      checksums.push(createHash("sha1").update(chunk).digest("base64"));
    }
  });
  return checksums;
}

/** Rejects a replay whose results differ from those of the direct run, and names the first difference. */
export function requireSameChecksums(
  name: string,
  direct: Checksums,
  replayed: Checksums,
  scratch: ScratchMemory | undefined,
): void {
  requireEqual(name, direct.bytes, replayed.bytes, scratch);
  for (const [storage, checksums] of direct.chunkChecksums) {
    const actual = replayed.chunkChecksums.get(storage);
    const isScratch = storage === scratch?.storage;
    const chunk = Array.from<unknown>(checksums).findIndex(
      (checksum, index) =>
        checksum !== actual?.[index] && (!isScratch || scratch.isComparable(index * chunkBytes, chunkBytes)),
    );
    if (chunk < 0) continue;
    const offset = chunk * chunkBytes;
    const label = isScratch ? scratch.nameAt(offset) : storage.label;
    throw new HoldfastError(
      "CAPTURE_MISMATCH",
      `The replay of "${name}" differs from the same work run directly: first in "${label}", in bytes ${offset} to ` +
        `${offset + chunkBytes} of its memory. The graph was not kept; the captured function must do the same work on ` +
        "the same memory every time.",
      { numbers: { capture: name, storage: label, byte: offset } },
    );
  }
}
