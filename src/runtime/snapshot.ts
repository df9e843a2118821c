/** A host copy of some storages: to put them back as they were, and to compare two runs bit for bit. */

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
