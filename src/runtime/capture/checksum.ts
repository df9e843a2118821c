/** Host copies and checksums of storages, to restore them and to compare two runs bit for bit. */

import { createHash } from "node:crypto";
import { HoldfastError } from "../../errors/index.js";
import type { Storage } from "../memory/storage.js";
import type { Transfer } from "../transfer/transfer.js";

export type Snapshot = ReadonlyMap<Storage, Uint8Array>;

export function takeSnapshot(transfer: Transfer, storages: Iterable<Storage>): Snapshot {
  return new Map([...storages].map((storage) => [storage, transfer.read(storage)]));
}

export function restoreSnapshot(transfer: Transfer, snapshot: Snapshot): void {
  transfer.upload([...snapshot].map(([target, source]) => ({ target, source })));
}

/** Rejects a replay that differs from the direct run; names the first buffer and byte. */
function requireEqual(name: string, direct: Snapshot, replayed: Snapshot): void {
  for (const [storage, expected] of direct) {
    const actual = replayed.get(storage);
    if (actual && Buffer.compare(expected, actual) === 0) continue;
    const byte = expected.findIndex((value, index) => value !== actual?.[index]);
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
}

/** The results of a run: small storages as bytes, large ones as checksums of chunks. */
export interface Checksums {
  readonly bytes: Snapshot;
  readonly chunkChecksums: ReadonlyMap<Storage, ChunkChecksums>;
}

type ChunkChecksums = readonly { readonly offset: number; readonly checksum: string }[];

const chunkBytes = 64 * 1024;

export function takeChecksums(transfer: Transfer, storages: readonly Storage[]): Checksums {
  const isLarge = ({ span }: Storage): boolean => span.size > chunkBytes;
  return {
    bytes: takeSnapshot(
      transfer,
      storages.filter((storage) => !isLarge(storage)),
    ),
    chunkChecksums: new Map(
      storages.filter(isLarge).map((storage) => [storage, takeChunkChecksums(transfer, storage)]),
    ),
  };
}

function takeChunkChecksums(transfer: Transfer, storage: Storage): ChunkChecksums {
  const checksums: { offset: number; checksum: string }[] = [];
  transfer.readChunks(storage, (chunk, start) => {
    for (let offset = 0; offset < chunk.length; offset += chunkBytes) {
      const checksum = createHash("sha1")
        .update(chunk.subarray(offset, offset + chunkBytes))
        .digest("base64");
      checksums.push({ offset: start + offset, checksum });
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
  requireEqual(name, direct.bytes, replayed.bytes);
  for (const [storage, checksums] of direct.chunkChecksums) {
    const actual = replayed.chunkChecksums.get(storage);
    const chunk = checksums.find(({ checksum }, index) => checksum !== actual?.[index]?.checksum);
    if (!chunk) continue;
    const label = storage === scratch?.storage ? scratch.nameAt(chunk.offset) : storage.label;
    throw new HoldfastError(
      "CAPTURE_MISMATCH",
      `The replay of "${name}" differs from the same work run directly: first in "${label}", in bytes ${chunk.offset} to ` +
        `${chunk.offset + chunkBytes} of its memory. The graph was not kept; the captured function must do the same work on ` +
        "the same memory every time.",
      { numbers: { capture: name, storage: label, byte: chunk.offset } },
    );
  }
}
