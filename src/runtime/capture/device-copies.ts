/**
 * Copies and digests of memory on the device, for the comparison of two runs. Both need free memory for a moment. If there is none, or no
 * kernel, the memory is read back instead.
 */

import type { Driver, Stream } from "../../driver/index.js";
import type { Budget } from "../memory/budget.js";
import type { PersistentMemory, Region } from "../memory/persistent.js";
import type { Storage } from "../memory/storage.js";
import type { Transfer } from "../transfer/transfer.js";
import type { Command } from "./command.js";
import type { Work } from "./work.js";

/** Returns a launch that writes the digest of each chunk of `data` to `digests`, 8 bytes each. */
export type LowerDigests = (data: Storage, chunkBytes: number, digests: Storage) => Command;

export const digestBytes = 8;

export interface DeviceCopiesOptions {
  readonly budget: Budget;
  readonly persistent: PersistentMemory;
  readonly transfer: Transfer;
  readonly work: Work;
  readonly driver: Driver;
  readonly stream: Stream;
  /** Issues commands; loads their kernels first. */
  readonly issue: (commands: readonly Command[]) => void;
  /** Undefined if the device has no kernel for digests. */
  readonly lowerDigests: () => LowerDigests | undefined;
}

/** A copy of storages in memory of the device. */
export interface DeviceCopy {
  restore(): void;
  release(): void;
}

/** Undefined if there is no room for the copy. */
export function copyOnDevice(
  options: DeviceCopiesOptions,
  storages: readonly Storage[],
): DeviceCopy | undefined {
  const { persistent, work, driver, stream } = options;
  const region = placeTemporarily(
    options,
    "copy of a capture's results",
    storages.map(({ span }) => span.size),
  );
  if (!region) return undefined;
  const pairs = region.storages.flatMap((copy, index) => {
    const storage = storages[index];
    return storage ? [{ storage, copy }] : [];
  });
  for (const { storage, copy } of pairs) work.copy(copy, storage);
  return {
    restore() {
      for (const { storage, copy } of pairs) work.copy(storage, copy);
    },
    release() {
      driver.synchronize(stream);
      persistent.release(region);
    },
  };
}

/** The digests of each storage's chunks. Undefined if there is no kernel for them, or no room. */
export function readDigests(
  options: DeviceCopiesOptions,
  storages: readonly Storage[],
  chunkBytes: number,
): readonly BigUint64Array[] | undefined {
  const lower = options.lowerDigests();
  const { persistent, transfer, issue } = options;
  const sizes = storages.map(({ span }) => Math.ceil(span.size / chunkBytes) * digestBytes);
  const region = lower && placeTemporarily(options, "digests of a capture's results", sizes);
  if (!lower || !region) return undefined;
  try {
    issue(
      region.storages.flatMap((digests, index) => {
        const storage = storages[index];
        return storage ? [lower(storage, chunkBytes, digests)] : [];
      }),
    );
    return region.storages.map((digests) => new BigUint64Array(transfer.read(digests).buffer));
  } finally {
    persistent.release(region);
  }
}

/** Undefined if the device computes no digests, or has no room: then it is not worth the pressure on its memory. */
function placeTemporarily(
  { budget, persistent, lowerDigests }: DeviceCopiesOptions,
  name: string,
  sizes: readonly number[],
): Region | undefined {
  const placements = sizes.map((size) => ({ name, size }));
  if (sizes.length === 0 || !lowerDigests()) return undefined;
  if (!budget.fitsWithoutPressure(persistent.chargeFor(name, placements))) return undefined;
  return persistent.place("graph", name, placements);
}
