/**
 * Reads the memory that is really free, and the budget's default share of it. On a unified-memory machine the driver's
 * free figure counts the page cache as used, and running out hangs the host. There the host's MemAvailable counts, and
 * the host keeps its share.
 */

import type { DeviceInfo, Driver, HostMemoryInfo } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Bytes, formatBytes, GiB, MiB } from "../../units/index.js";

export interface FreeMemory {
  /** Bytes really free now. The driver may report another figure. */
  readonly free: Bytes;
  /** Maximum budget that a user can request by size. */
  readonly maxBytes: Bytes;
  /** The default budget: free memory less the margin. */
  readonly available: Bytes;
  /** The bytes left to others: the host's share, or the card's margin. */
  readonly margin: Bytes;
  /** Explains the figure. */
  readonly reason: string;
}

type HostReader = () => HostMemoryInfo;

/** Reads the memory that this device can provide now. */
export function readFreeMemory(device: DeviceInfo, driver: Driver, readHost: HostReader): FreeMemory {
  const reported = driver.memory();
  switch (device.memory) {
    case "discrete":
      return less(reported.free, computeMargin(reported.total, 0.02, 512 * MiB), "the card's free memory");
    case "unified": {
      const host = readHost();
      // A cgroup kills a process that exceeds its limit. A host without memory hangs, so its share is always kept.
      const isHostBound = host.binding === host.total;
      const margin = isHostBound
        ? Math.max(0.1 * host.total, 8 * GiB)
        : computeMargin(host.binding, 0.1, 512 * MiB);
      const limits = less(host.available, margin, whoseMemory(host));
      return isHostBound ? { ...limits, maxBytes: limits.available } : limits;
    }
    case "host": {
      const host = readHost();
      const limits = less(host.available, computeMargin(host.binding, 0.1, 512 * MiB), whoseMemory(host));
      const maxBytes = Math.min(limits.maxBytes, reported.free) as Bytes;
      return limits.available < reported.free
        ? { ...limits, maxBytes }
        : { ...limits, maxBytes, available: reported.free, reason: "the CPU driver's address space" };
    }
  }
}

/** A share of the memory, with a fixed minimum, which is at most a quarter of the memory: a container may be small. */
function computeMargin(total: number, share: number, minBytes: number): number {
  return Math.max(share * total, Math.min(minBytes, total / 4));
}

function whoseMemory({ total, binding }: HostMemoryInfo): string {
  return binding < total
    ? `what remains of the cgroup limit of ${formatBytes(binding)}`
    : "the host's MemAvailable";
}

function less(free: number, wantedMargin: number, whose: string): FreeMemory {
  const margin = Math.ceil(wantedMargin);
  return {
    free: Math.floor(free) as Bytes,
    maxBytes: Math.floor(free) as Bytes,
    available: Math.max(0, Math.floor(free) - margin) as Bytes,
    margin: margin as Bytes,
    reason: `${whose}, ${formatBytes(Math.floor(free))}, less ${formatBytes(margin)}`,
  };
}

/**
 * The budget's limit: the requested size, without a margin, if it is available; else the free memory less the margin.
 */
export function chooseLimit(requested: Bytes | "auto", free: FreeMemory): { limit: Bytes; reason: string } {
  if (requested !== "auto" && requested <= free.maxBytes)
    return { limit: requested, reason: "HOLDFAST_MEMORY" };
  if (requested === "auto" && free.available === 0) {
    throw new HoldfastError(
      "OUT_OF_BUDGET",
      `No memory is left for the budget: ${formatBytes(free.free)} is free, and the margin is ${formatBytes(free.margin)}. End other programs` +
        `${free.maxBytes > 0 ? `, or set HOLDFAST_MEMORY to at most ${formatBytes(free.maxBytes)}` : ""}.`,
      { numbers: { available: 0, margin: free.margin } },
    );
  }
  if (requested === "auto") return { limit: free.available, reason: free.reason };
  throw new HoldfastError(
    "OUT_OF_BUDGET",
    `HOLDFAST_MEMORY asks for ${formatBytes(requested)}, but at most ${formatBytes(free.maxBytes)} is available. The default would be ` +
      `${formatBytes(free.available)} (${free.reason}). Lower HOLDFAST_MEMORY, or free memory on this machine.`,
    { numbers: { asked: requested, available: free.maxBytes, margin: free.margin } },
  );
}
