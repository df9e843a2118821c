/** A host copy of some storages: to put them back as they were, and to compare two runs bit for bit. */

import { createHash } from "node:crypto";
import { HoldfastError } from "../errors/index.js";
import type { Storage } from "./storage.js";
import type { Transfer } from "./transfer.js";

export type Snapshot = ReadonlyMap<Storage, Uint8Array>;

export function takeSnapshot(transfer: Transfer, storages: Iterable<Storage>): Snapshot {
  return new Map([...storages].map((storage) => [storage, transfer.read(storage)]));
}

export function restoreSnapshot(transfer: Transfer, snapshot: Snapshot): void {
  transfer.upload([...snapshot].map(([target, source]) => ({ target, source })));
}

/** Refuses a replay that differs from the direct run; names the first buffer and byte. */
export function requireEqual(name: string, direct: Snapshot, replayed: Snapshot): void {
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

/** Memory that a captured function uses and nobody reads before or after it. */
export interface ScratchMemory {
  readonly storage: Storage;
  /** What lies at an offset at the function's end, for messages. */
  nameAt(offset: number): string;
}

/** What a storage holds, as checksums of its parts: enough to tell whether two runs have left the same. */
export type Print = readonly { readonly offset: number; readonly checksum: string }[];

const printedBytes = 64 * 1024;

export function takePrint(transfer: Transfer, { storage }: ScratchMemory): Print {
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

/** Refuses a replay that has left something else in scratch memory than the direct run; names what lies there. */
export function requireSamePrint(
  name: string,
  { nameAt }: ScratchMemory,
  direct: Print,
  replayed: Print,
): void {
  const place = direct.findIndex(({ checksum }, index) => checksum !== replayed[index]?.checksum);
  const part = direct[place];
  if (!part) return;
  const label = nameAt(part.offset);
  throw new HoldfastError(
    "CAPTURE_MISMATCH",
    `The replay of "${name}" differs from the same work run directly: first in "${label}", among bytes ${part.offset} to ` +
      `${part.offset + printedBytes} of its memory. The graph was not kept; the captured function must do the same work on ` +
      "the same memory every time.",
    { numbers: { capture: name, storage: label, byte: part.offset } },
  );
}
