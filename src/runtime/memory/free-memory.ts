/**
 * How much memory there truly is, and how much of it the budget takes by default. On a unified-memory machine the
 * driver's free figure counts the page cache as used and running out wedges the host: there the host's MemAvailable
 * is the truth, and the host keeps its share.
 */

import type { DeviceInfo, Driver, HostMemoryInfo } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type Bytes, formatBytes, GiB, MiB } from "../../units/index.js";

export interface FreeMemory {
  /** What is truly free now, whatever the driver says. */
  readonly free: Bytes;
  /** The most that can be taken of it, for a budget that somebody has asked for by its size. */
  readonly maxBytes: Bytes;
  /** What is taken of it unless somebody asks, the margin left alone. */
  readonly available: Bytes;
  /** What is left to others: the host's share, or the card's margin. */
  readonly margin: Bytes;
  /** How the figure came about, for people. */
  readonly reason: string;
}

type HostReader = () => HostMemoryInfo;

/** Tells truthfully what may be taken on this device right now. */
export function readFreeMemory(device: DeviceInfo, driver: Driver, readHost: HostReader): FreeMemory {
  const told = driver.memory();
  switch (device.memory) {
    case "discrete":
      return less(told.free, marginOf(told.total, 0.02, 512 * MiB), "the card's free memory");
    case "unified": {
      const host = readHost();
      // A control group ends a process that takes too much. A host without memory hangs: nobody may take its share.
      const isHostBound = host.binding === host.total;
      const margin = isHostBound
        ? Math.max(0.1 * host.total, 8 * GiB)
        : marginOf(host.binding, 0.1, 512 * MiB);
      const offered = less(host.available, margin, whoseMemory(host));
      return isHostBound ? { ...offered, maxBytes: offered.available } : offered;
    }
    case "host": {
      const host = readHost();
      const offered = less(host.available, marginOf(host.binding, 0.1, 512 * MiB), whoseMemory(host));
      const maxBytes = Math.min(offered.maxBytes, told.free) as Bytes;
      return offered.available < told.free
        ? { ...offered, maxBytes }
        : { ...offered, maxBytes, available: told.free, reason: "what the CPU driver can address" };
    }
  }
}

/** A share of the memory, and no less than a fixed size unless that were more than a quarter: a container may be small. */
function marginOf(total: number, share: number, minBytes: number): number {
  return Math.max(share * total, Math.min(minBytes, total / 4));
}

function whoseMemory({ total, binding }: HostMemoryInfo): string {
  return binding < total
    ? `what the control group's limit of ${formatBytes(binding)} leaves`
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

/** The budget's limit: a size that was asked for, if the machine has it, without a margin; else what is free less the margin. */
export function chooseLimit(asked: Bytes | "auto", free: FreeMemory): { limit: Bytes; reason: string } {
  if (asked !== "auto" && asked <= free.maxBytes) return { limit: asked, reason: "HOLDFAST_MEMORY" };
  if (asked === "auto" && free.available === 0) {
    throw new HoldfastError(
      "OUT_OF_BUDGET",
      `No memory is left for the budget: ${formatBytes(free.free)} are free, and the margin is ${formatBytes(free.margin)}. End other programs` +
        `${free.maxBytes > 0 ? `, or set HOLDFAST_MEMORY to at most ${formatBytes(free.maxBytes)}` : ""}.`,
      { numbers: { available: 0, margin: free.margin } },
    );
  }
  if (asked === "auto") return { limit: free.available, reason: free.reason };
  throw new HoldfastError(
    "OUT_OF_BUDGET",
    `HOLDFAST_MEMORY asks for ${formatBytes(asked)}, and at most ${formatBytes(free.maxBytes)} are available. The default would be ` +
      `${formatBytes(free.available)} (${free.reason}). Lower HOLDFAST_MEMORY, or free memory on this machine.`,
    { numbers: { asked, available: free.maxBytes, margin: free.margin } },
  );
}
