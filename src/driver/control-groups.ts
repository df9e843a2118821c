/**
 * Finds the cgroup folders of this process, which hold a container's limits. `root` replaces "/", so that tests can
 * simulate any machine.
 */

import { readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { HoldfastError } from "../errors/index.js";

export interface GroupFolder {
  readonly path: string;
  readonly version: 1 | 2;
}

/**
 * Lists the cgroup folders for one controller, from this process's group up to the root. A limit at any level applies.
 * A controller is mounted under version 1 or version 2, never both. Listed folders need not exist.
 */
export function listGroupFolders(root: string, controller: "memory" | "cpu"): GroupFolder[] {
  const membershipPath = join(root, "proc/self/cgroup");
  const lines = readIfPresent(membershipPath)?.split("\n").filter(Boolean) ?? [];
  return lines.flatMap((line): GroupFolder[] => {
    const match = /^\d+:([^:]*):(\/.*)$/.exec(line);
    if (!match) throw malformed(membershipPath, line, "lines such as 0::/user.slice");
    const [, controllers = "", group = "/"] = match;
    const mount = join(root, "sys/fs/cgroup");
    if (controllers === "")
      return levelsUpFrom(group).map((level) => ({ path: join(mount, level), version: 2 }));
    if (!controllers.split(",").includes(controller)) return [];
    // Version 1 mounts combined controllers as "cpu,cpuacct". The single names are symlinks, which a container may
    // lack.
    return [...new Set([controller, controllers])].flatMap((name) =>
      levelsUpFrom(group).map((level) => ({ path: join(mount, name, level), version: 1 })),
    );
  });
}

/** Inside a container the path may name a group above the mount point; those levels do not exist. */
function levelsUpFrom(path: string): string[] {
  const levels = [path];
  for (let level = path; level !== "/"; level = posix.dirname(level)) levels.push(posix.dirname(level));
  return levels;
}

export function malformed(path: string, content: string, expected: string): HoldfastError {
  const message = `${path} should contain ${expected} but contains ${JSON.stringify(content)}, so the machine's limits are unknown. Check that /proc and /sys are mounted from the kernel.`;
  return new HoldfastError("DRIVER_FAILED", message, { numbers: { path, content } });
}

export function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? "";
    if (["ENOENT", "ENOTDIR", "EACCES"].includes(reason)) return undefined;
    throw new HoldfastError(
      "DRIVER_FAILED",
      `${path} cannot be read (${reason}), so the machine's limits are unknown. Check the permissions of this process.`,
      { cause },
    );
  }
}
