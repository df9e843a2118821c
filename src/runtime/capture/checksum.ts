/** A host copy of some storages: to put them back as they were, and to compare two runs bit for bit. */

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
    const found = replayed.get(storage);
    if (found && Buffer.compare(expected, found) === 0) continue;
    const at = expected.findIndex((byte, index) => byte !== found?.[index]);
    throw new HoldfastError(
      "CAPTURE_MISMATCH",
      `The replay of "${name}" differs from the same work run directly: first in "${storage.label}" at byte ${at} of ` +
        `${expected.length} (${expected[at]} directly, ${found?.[at]} replayed). The graph was not kept; the captured ` +
        "function must do the same work on the same memory every time.",
      { numbers: { capture: name, storage: storage.label, byte: at } },
    );
  }
}

/** Storages whose bytes are not all those of another one: what is read of them is read once. */
export function uncovered(storages: Iterable<Storage>): Storage[] {
  const sorted = [...storages].sort((a, b) => a.span.address - b.span.address || b.span.size - a.span.size);
  const kept: Storage[] = [];
  let end = 0;
  for (const storage of sorted) {
    const { address, size } = storage.span;
    if (kept.length > 0 && address + size <= end) continue;
    kept.push(storage);
    end = Math.max(end, address + size);
  }
  return kept;
}

/** Memory that a captured function uses and nobody reads before or after it. */
export interface ScratchMemory {
  readonly storage: Storage;
  /** What lies at an offset at the function's end, for messages. */
  nameAt(offset: number): string;
}

/** What a run has left: small storages byte for byte, large ones as checksums of their parts. */
export interface Checksums {
  readonly bytes: Snapshot;
  readonly prints: ReadonlyMap<Storage, Print>;
}

type Print = readonly { readonly offset: number; readonly checksum: string }[];

const printedBytes = 64 * 1024;

export function takeChecksums(transfer: Transfer, storages: readonly Storage[]): Checksums {
  const isLarge = ({ span }: Storage): boolean => span.size > printedBytes;
  return {
    bytes: takeSnapshot(
      transfer,
      storages.filter((storage) => !isLarge(storage)),
    ),
    prints: new Map(storages.filter(isLarge).map((storage) => [storage, takePrint(transfer, storage)])),
  };
}

function takePrint(transfer: Transfer, storage: Storage): Print {
  const print: { offset: number; checksum: string }[] = [];
  transfer.readParts(storage, (part, start) => {
    for (let at = 0; at < part.length; at += printedBytes) {
      const checksum = createHash("sha1")
        .update(part.subarray(at, at + printedBytes))
        .digest("base64");
      print.push({ offset: start + at, checksum });
    }
  });
  return print;
}

/** Rejects a replay that has left something else than the direct run; names what it is. */
export function requireSameChecksums(
  name: string,
  direct: Checksums,
  replayed: Checksums,
  scratch: ScratchMemory | undefined,
): void {
  requireEqual(name, direct.bytes, replayed.bytes);
  for (const [storage, print] of direct.prints) {
    const found = replayed.prints.get(storage);
    const part = print.find(({ checksum }, index) => checksum !== found?.[index]?.checksum);
    if (!part) continue;
    const label = storage === scratch?.storage ? scratch.nameAt(part.offset) : storage.label;
    throw new HoldfastError(
      "CAPTURE_MISMATCH",
      `The replay of "${name}" differs from the same work run directly: first in "${label}", among bytes ${part.offset} to ` +
        `${part.offset + printedBytes} of its memory. The graph was not kept; the captured function must do the same work on ` +
        "the same memory every time.",
      { numbers: { capture: name, storage: label, byte: part.offset } },
    );
  }
}
