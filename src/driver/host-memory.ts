/**
 * Memory available to this process: the kernel's figures, limited by the cgroups. `root` replaces "/", so that tests
 * can simulate any machine.
 */

import { freemem, totalmem } from "node:os";
import { join } from "node:path";
import { type Bytes, bytes, KiB } from "../units/index.js";
import { listGroupFolders, malformed, readIfPresent } from "./control-groups.js";

export interface HostMemoryInfo {
  readonly total: Bytes;
  /**
   * Memory that can be used without swapping or being killed: the minimum of the host's figure and every cgroup's
   * headroom.
   */
  readonly available: Bytes;
  /** The total that `available` belongs to: the host's memory, or the limit of the cgroup with the least headroom. */
  readonly binding: Bytes;
  /** The tightest limit of this process's cgroups. */
  readonly cgroupLimit: Bytes | undefined;
  /** Memory use of the cgroup with that limit, less the page cache that it would reclaim. */
  readonly cgroupUsed: Bytes | undefined;
}

/** So long the figures of this machine are used again: several parts of a runtime ask within a moment, and reading takes 0.3 ms. */
const maxAgeMs = 5;
let latest: { readonly info: HostMemoryInfo; readonly readAt: number } | undefined;

/** The current figures. */
export function readHostMemory(root = "/"): HostMemoryInfo {
  if (root !== "/") return readFiles(root);
  const now = performance.now();
  if (latest === undefined || now - latest.readAt > maxAgeMs) latest = { info: readFiles(root), readAt: now };
  return latest.info;
}

function readFiles(root: string): HostMemoryInfo {
  const meminfoPath = join(root, "proc/meminfo");
  const meminfo = readIfPresent(meminfoPath);
  const total = meminfo === undefined ? totalmem() : kibibytes(meminfoPath, meminfo, "MemTotal");
  const available = meminfo === undefined ? freemem() : kibibytes(meminfoPath, meminfo, "MemAvailable");

  const groups = listGroupFolders(root, "memory").flatMap(
    ({ path, version }) => readGroup(path, version === 2 ? version2 : version1) ?? [],
  );
  const nearest = groups.reduce<Group | undefined>(
    (best, group) => (best === undefined || headroom(group) < headroom(best) ? group : best),
    undefined,
  );
  const isHostNearer = nearest === undefined || available < headroom(nearest);
  const tightest = groups.reduce<Group | undefined>(
    (best, group) => (best === undefined || group.limit < best.limit ? group : best),
    undefined,
  );
  return {
    total: bytes(total),
    available: bytes(isHostNearer ? available : headroom(nearest)),
    binding: bytes(isHostNearer ? total : nearest.limit),
    cgroupLimit: tightest && bytes(tightest.limit),
    cgroupUsed: tightest && bytes(tightest.used),
  };
}

interface Group {
  readonly limit: number;
  readonly used: number;
}

function headroom({ limit, used }: Group): number {
  return Math.max(0, limit - used);
}

/** The files of one cgroup version. */
interface GroupFiles {
  readonly limit: string;
  readonly used: string;
  /** The row of memory.stat that counts reclaimable cache. */
  readonly reclaimable: string;
}

const version2: GroupFiles = {
  limit: "memory.max",
  used: "memory.current",
  reclaimable: "inactive_file",
};
const version1: GroupFiles = {
  limit: "memory.limit_in_bytes",
  used: "memory.usage_in_bytes",
  reclaimable: "total_inactive_file",
};

function readGroup(folder: string, files: GroupFiles): Group | undefined {
  const limitPath = join(folder, files.limit);
  const usedPath = join(folder, files.used);
  const limitText = readIfPresent(limitPath)?.trim();
  const usedText = readIfPresent(usedPath)?.trim();
  if (limitText === undefined || usedText === undefined || limitText === "max") return undefined;
  const limit = wholeNumber(limitPath, limitText);
  // Version 1 writes "no limit" as a number just below 2⁶³.
  if (limit > Number.MAX_SAFE_INTEGER) return undefined;
  const statistics = readIfPresent(join(folder, "memory.stat")) ?? "";
  const reclaimable = new RegExp(`^${files.reclaimable} (\\d+)$`, "m").exec(statistics)?.[1];
  return { limit, used: Math.max(0, wholeNumber(usedPath, usedText) - Number(reclaimable ?? 0)) };
}

function kibibytes(path: string, meminfo: string, row: string): number {
  const match = new RegExp(`^${row}:\\s+(\\d+) kB$`, "m").exec(meminfo);
  if (!match) throw malformed(path, meminfo.slice(0, 80), `a row "${row}: … kB"`);
  return Number(match[1]) * KiB;
}

function wholeNumber(path: string, content: string): number {
  if (!/^\d+$/.test(content)) throw malformed(path, content, "a whole number of bytes");
  return Number(content);
}
