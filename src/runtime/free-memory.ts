/**
 * How much memory there truly is, and how much of it the budget takes by default. On a unified-memory machine the
 * driver's free figure counts the page cache as used and running out wedges the host: there the host's MemAvailable
 * is the truth, and the host keeps its share.
 */

import type { DeviceInfo, Driver, HostMemoryInfo } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import { type Bytes, formatBytes, GiB, MiB } from "../units/index.js";

export interface FreeMemory {
  /** What is truly free now, whatever the driver says. */
  readonly free: Bytes;
  /** What may be taken of it, the margin left alone. */
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
      return less(told.free, Math.max(512 * MiB, 0.02 * told.total), "the card's free memory");
    case "unified": {
      const host = readHost();
      return less(host.available, Math.max(8 * GiB, 0.1 * host.total), "the host's MemAvailable");
    }
    case "host": {
      const host = readHost();
      const offered = less(host.available, Math.max(512 * MiB, 0.1 * host.total), "the host's MemAvailable");
      return offered.available < told.free
        ? offered
        : { ...offered, available: told.free, reason: "what the CPU driver can address" };
    }
  }
}

function less(free: number, wantedMargin: number, whose: string): FreeMemory {
  const margin = Math.ceil(wantedMargin);
  return {
    free: Math.floor(free) as Bytes,
    available: Math.max(0, Math.floor(free) - margin) as Bytes,
    margin: margin as Bytes,
    reason: `${whose}, ${formatBytes(Math.floor(free))}, less ${formatBytes(margin)}`,
  };
}

/** The budget's limit: what was asked for, if the machine can give it, else what is free less the margin. */
export function chooseLimit(asked: Bytes | "auto", free: FreeMemory): { limit: Bytes; reason: string } {
  if (free.available === 0) {
    throw new HoldfastError(
      "OUT_OF_BUDGET",
      `There is no memory to work with: ${free.reason}, leaves nothing. End what else uses this machine's memory.`,
      { numbers: { available: 0, margin: free.margin } },
    );
  }
  if (asked === "auto") return { limit: free.available, reason: free.reason };
  if (asked <= free.available) return { limit: asked, reason: "HOLDFAST_MEMORY" };
  throw new HoldfastError(
    "OUT_OF_BUDGET",
    `A budget of ${formatBytes(asked)} was asked for, and only ${formatBytes(free.available)} can be given ` +
      `(${free.reason}). Lower HOLDFAST_MEMORY, or free memory on this machine.`,
    { numbers: { asked, available: free.available, margin: free.margin } },
  );
}
